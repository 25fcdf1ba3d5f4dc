//! Stop and remove.

use std::time::Duration;

use cri::ContainerState;

use crate::subject::{LIMIT, Program, Subject};

pub(crate) async fn tc_066_a_stop_ends_when_the_program_obeys(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::obeys()).await;
    subject.runtime.stop_container(&id, 10 * LIMIT).await.unwrap();
    let ended = subject.container(&id).await;
    assert_eq!((ended.state, ended.exit_code, ended.reason.as_str()), (ContainerState::Exited, 7, "Error"));
}

pub(crate) async fn tc_066_a_stop_kills_at_its_deadline(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::stubborn()).await;
    let started = std::time::Instant::now();
    subject.runtime.stop_container(&id, Duration::from_secs(1)).await.unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(subject.container(&id).await.exit_code, 137);
}

pub(crate) async fn tc_053_a_stop_without_grace_kills_at_once(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::stubborn()).await;
    subject.runtime.stop_container(&id, Duration::ZERO).await.unwrap();
    assert_eq!(subject.container(&id).await.exit_code, 137);
}

pub(crate) async fn tc_066_a_second_stop_brings_the_deadline_forward(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::stubborn()).await;
    let slow = subject.runtime.stop_container(&id, 100 * LIMIT);
    let quick = async {
        // Polled after the first one, which is under way then.
        tokio::task::yield_now().await;
        subject.runtime.stop_container(&id, Duration::from_secs(1)).await
    };
    let (slow, quick) = tokio::time::timeout(LIMIT, async { tokio::join!(slow, quick) }).await.expect("not re-armed");
    slow.unwrap();
    quick.unwrap();
    assert_eq!(subject.container(&id).await.exit_code, 137);
}

pub(crate) async fn tc_053_stops_and_removals_can_be_repeated(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let created = subject.create(&sandbox, "created", &Program::exits(0)).await;
    let ended = subject.start(&sandbox, "ended", &Program::exits(3)).await;
    subject.exit(&ended).await;
    subject.runtime.stop_container(&ended, LIMIT).await.unwrap();
    subject.runtime.stop_container(&ended, Duration::ZERO).await.unwrap();
    assert_eq!(subject.container(&ended).await.exit_code, 3);
    for id in [&created, &ended, &created, &ended] {
        subject.runtime.remove_container(id).await.unwrap();
    }
    assert_eq!(subject.runtime.containers(None).await.unwrap(), []);
}

pub(crate) async fn removing_a_running_container_kills_it(subject: &Subject) {
    let sandbox = subject.sandbox("a").await;
    let id = subject.start(&sandbox, "c", &Program::stubborn()).await;
    subject.runtime.remove_container(&id).await.unwrap();
    assert_eq!(subject.runtime.containers(None).await.unwrap(), []);
}
