//! Small requests that would cost much.

use podium_misuse::{Answer, Cluster, trial};

const MAPS: &str = "/api/v1/namespaces/hostile/configmaps";
/// An answer about what is wrong, with room for a hundred of it.
const ANSWER_MAX: usize = 256 << 10;

fn outcome(answer: &Answer) -> String {
    assert!((200..500).contains(&answer.code), "{answer:?}");
    assert!(answer.body.len() < ANSWER_MAX || answer.code < 300, "an answer of {} bytes", answer.body.len());
    format!("{} ({})", if answer.code < 300 { "served" } else { "refused" }, answer.code)
}

#[test]
fn a_key_given_ten_thousand_times_is_told_in_short() {
    trial("6 repeated keys", async |cluster: &mut Cluster| {
        let keys: Vec<String> = (0..20_000).map(|_| r#""a":"1""#.to_owned()).collect();
        let body = format!(r#"{{"metadata":{{"name":"repeated"}},"data":{{{}}}}}"#, keys.join(","));
        let headers = [("content-type", "application/json")];
        let answer = cluster.tenant.ask("POST", &format!("{MAPS}?fieldValidation=Strict"), &headers, body).await;
        answer.refused(&[400, 413, 422]);
        outcome(&answer)
    });
}
