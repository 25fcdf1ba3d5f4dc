//! A program on a terminal of its own, as a person would use it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use nix::pty::{Winsize, openpty};

use crate::process::Patience;

/// Ended when dropped.
pub struct Terminal {
    child: Child,
    keyboard: File,
    /// The program's end, to change the size of.
    screen: OwnedFd,
    output: Receiver<Vec<u8>>,
    shown: String,
}

impl Terminal {
    /// Starts a program on a terminal with this many rows and columns.
    #[track_caller]
    pub fn start(command: &Command, (rows, columns): (u16, u16)) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = openpty(Some(&size), None).expect("there are terminals");
        let end = || Stdio::from(ends.slave.try_clone().expect("a descriptor can be copied"));
        // Without it the program is not told of changes of the size.
        let mut leader = Command::new("setsid");
        leader.args(["--ctty", "--wait"]).arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                leader.env(key, value);
            }
        }
        let child = leader.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid can be started");
        let keyboard = File::from(ends.master);
        let mut reader = keyboard.try_clone().expect("a descriptor can be copied");
        let (tx, output) = channel();
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            // A terminal nobody has open any more ends with an error.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                if tx.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { child, keyboard, screen: ends.slave, output, shown: String::new() }
    }

    #[track_caller]
    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    #[track_caller]
    pub fn resize(&self, rows: u16, columns: u16) {
        let mut stty = Command::new("stty");
        stty.args(["rows", &rows.to_string(), "cols", &columns.to_string()]);
        let screen = self.screen.try_clone().expect("a descriptor can be copied");
        assert!(stty.stdin(screen).status().expect("stty can be started").success());
    }

    /// Waits until the screen has shown this, and returns all it has shown.
    #[track_caller]
    pub fn until(&mut self, words: &str) -> &str {
        let deadline = Instant::now() + Patience::LONG.0;
        while !self.shown.contains(words) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else {
                panic!("the terminal never showed {words:?}, but:\n{}", self.shown);
            };
            self.shown.push_str(&String::from_utf8_lossy(&bytes));
        }
        &self.shown
    }

    /// Waits for the end of the program: its exit code.
    #[track_caller]
    pub fn code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Patience::LONG.0;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it still runs; the terminal shows:\n{}", self.shown);
            // New output or its end wakes us, else we look again.
            if let Ok(bytes) = self.output.recv_timeout(std::time::Duration::from_millis(50)) {
                self.shown.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
