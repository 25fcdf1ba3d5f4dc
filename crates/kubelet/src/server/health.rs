//! API-693: is the agent well? As upstream: three checks, together or alone.

use std::time::Duration;

use http::{Response, StatusCode};

use super::{Body, text};
use crate::ctx::Ctx;

/// The loop over all pods comes round at least every minute; upstream is as
/// patient.
const ROUND_MAX: Duration = Duration::from_secs(300);
const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// `None`: all of them; `Some` other name: there is no such check.
pub(super) fn answer(ctx: &Ctx, check: Option<&str>) -> Option<Response<Body>> {
    let since_round = ctx.clock.now().mono.since(ctx.last_round());
    let (status, message) = match check {
        None => all(since_round),
        Some(check) if CHECKS.contains(&check) => one(check, since_round),
        Some(_) => return None,
    };
    Some(text(status, message))
}

fn problem(check: &str, since_round: Duration) -> Option<&'static str> {
    (check == "syncloop" && since_round > ROUND_MAX).then_some("sync Loop took longer than expected")
}

fn one(check: &str, since_round: Duration) -> (StatusCode, String) {
    match problem(check, since_round) {
        None => (StatusCode::OK, "ok".to_owned()),
        Some(problem) => (StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {problem}\n")),
    }
}

fn all(since_round: Duration) -> (StatusCode, String) {
    if CHECKS.iter().all(|check| problem(check, since_round).is_none()) {
        return (StatusCode::OK, "ok".to_owned());
    }
    let line = |check: &&str| match problem(check, since_round) {
        None => format!("[+]{check} ok\n"),
        Some(_) => format!("[-]{check} failed: reason withheld\n"),
    };
    let lines: String = CHECKS.iter().map(line).collect();
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{lines}healthz check failed\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_693_a_loop_that_hangs_makes_the_agent_unwell() {
        let (well, late) = (Duration::from_secs(300), Duration::from_secs(301));
        assert_eq!(all(well), (StatusCode::OK, "ok".to_owned()));
        assert_eq!(one("syncloop", well), (StatusCode::OK, "ok".to_owned()));
        assert_eq!(one("ping", late), (StatusCode::OK, "ok".to_owned()));
        let told = "internal server error: sync Loop took longer than expected\n".to_owned();
        assert_eq!(one("syncloop", late), (StatusCode::INTERNAL_SERVER_ERROR, told));
        let told = "[+]ping ok\n[+]log ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n".to_owned();
        assert_eq!(all(late), (StatusCode::INTERNAL_SERVER_ERROR, told));
    }
}
