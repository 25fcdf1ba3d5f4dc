//! How far an image is: bars on a terminal, plain lines elsewhere. Goes to
//! standard error; results go to standard output.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Read};
use std::sync::{Arc, Mutex, PoisonError};

use engine::images::{LayerProgress, Watcher};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::human_size;

/// The layers of one image.
pub(super) struct Layers {
    /// `None`: nobody watches, lines are better.
    bars: Option<MultiProgress>,
    layers: Arc<Mutex<BTreeMap<String, ProgressBar>>>,
}

impl Layers {
    pub(super) fn new() -> Self {
        Self { bars: is_watched().then(MultiProgress::new), layers: Arc::default() }
    }

    pub(super) fn watcher(&self) -> Watcher {
        let (bars, layers) = (self.bars.clone(), self.layers.clone());
        Arc::new(move |digest: &str, progress: LayerProgress| match &bars {
            Some(bars) => {
                let mut layers = layers.lock().unwrap_or_else(PoisonError::into_inner);
                let bar = layers.entry(digest.to_owned()).or_insert_with(|| bars.add(bar(digest)));
                show(bar, progress);
            }
            None => {
                if let Some(line) = line(digest, progress) {
                    eprintln!("{line}");
                }
            }
        })
    }

    /// Leaves the bars as they are: the last state is the result.
    pub(super) fn finish(&self) {
        for bar in self.layers.lock().unwrap_or_else(PoisonError::into_inner).values() {
            bar.abandon();
        }
    }
}

fn show(bar: &ProgressBar, progress: LayerProgress) {
    match progress {
        LayerProgress::Present => {
            bar.set_length(1);
            bar.set_position(1);
            bar.set_message("already here");
        }
        LayerProgress::Received { bytes, of } => {
            bar.set_length(of);
            bar.set_position(bytes);
            bar.set_message(format!("{} of {}", human_size(bytes), human_size(of)));
        }
        LayerProgress::Verified => bar.set_message("verified"),
        LayerProgress::Unpacked => bar.set_message("done"),
    }
}

/// One line a layer; how it gets there interests nobody in a log.
fn line(digest: &str, progress: LayerProgress) -> Option<String> {
    let layer = short(digest);
    match progress {
        LayerProgress::Present => Some(format!("{layer}: already here")),
        LayerProgress::Received { bytes, of } if bytes == of => Some(format!("{layer}: fetched {}", human_size(of))),
        LayerProgress::Received { .. } | LayerProgress::Verified | LayerProgress::Unpacked => None,
    }
}

fn short(digest: &str) -> &str {
    let digits = digest.trim_start_matches("sha256:");
    digits.get(..12).unwrap_or(digits)
}

/// Without colours, which also pleases NO_COLOR.
fn bar(digest: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ");
    ProgressBar::no_length().with_style(style).with_prefix(short(digest).to_owned())
}

/// An archive being read.
pub(super) fn reading(source: Box<dyn Read>, length: Option<u64>) -> Box<dyn Read> {
    if !is_watched() {
        return source;
    }
    let (template, bar) = match length {
        Some(length) => ("reading [{bar:30}] {bytes} of {total_bytes}", ProgressBar::new(length)),
        None => ("reading {bytes}", ProgressBar::no_length()),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    Box::new(bar.with_style(style.progress_chars("=> ")).wrap_read(source))
}

fn is_watched() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_one_line_a_layer() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let lines: Vec<String> = [
            LayerProgress::Received { bytes: 1, of: 2_000_000 },
            LayerProgress::Received { bytes: 2_000_000, of: 2_000_000 },
            LayerProgress::Verified,
            LayerProgress::Unpacked,
        ]
        .into_iter()
        .filter_map(|progress| line(&digest, progress))
        .collect();
        assert_eq!(lines, ["abababababab: fetched 2.0 MB"]);
        assert_eq!(line(&digest, LayerProgress::Present).unwrap(), "abababababab: already here");
    }
}
