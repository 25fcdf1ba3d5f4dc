//! The store contract, engine by engine: every case runs on every engine. A
//! new engine adds one line to `engines!`. What only one engine can do is
//! tested beside: the file in `../embedded.rs`, etcd's outages in `outages.rs`.
#![allow(clippy::unwrap_used, reason = "a test that can not go on fails")]

mod cases;
mod engines;
#[path = "../support/etcd.rs"]
mod etcd_server;
mod history;
mod linear;
mod outages;
mod reads;
mod sealing;
mod watches;
mod writes;

macro_rules! engines {
    ($($file:ident: $($case:ident),* $(,)?;)*) => {
        mod embedded_engine {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $case() { crate::$file::$case(crate::engines::embedded().await).await; })*)*
        }
        mod memory_engine {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $case() { crate::$file::$case(crate::engines::memory().await).await; })*)*
        }
        mod etcd_engine {
            $($(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $case() { crate::$file::$case(crate::engines::etcd().await).await; })*)*
        }
    };
}

engines!(
    writes:
        revisions_grow_by_one_per_batch,
        create_refuses_an_existing_key,
        update_and_delete_need_the_revision_seen,
        a_batch_is_all_or_nothing,
        a_guard_binds_a_batch_to_what_was_seen,
        a_deleted_key_can_be_created_anew,
        a_value_too_large_changes_nothing,
        an_acknowledged_write_is_shown,
        concurrent_writers_of_one_key_serialise;
    reads:
        lists_are_in_key_order_and_below_the_prefix_only,
        pages_come_from_one_revision,
        a_walk_over_pages_is_one_snapshot_whatever_is_written,
        a_walk_whose_snapshot_is_compacted_fails,
        lists_at_a_past_revision_show_that_moment,
        lists_at_compacted_or_future_revisions_fail,
        compacting_again_or_less_changes_nothing;
    watches:
        a_watch_sees_each_change_once_and_in_order,
        a_batch_is_delivered_in_one_piece,
        a_closed_store_ends_its_watches,
        a_watch_from_the_past_replays,
        a_watch_resumed_where_it_ended_misses_and_repeats_nothing,
        a_watch_given_up_while_waiting_loses_nothing,
        a_watch_below_a_short_prefix_merges_kinds_in_order,
        a_watch_from_a_future_revision_fails,
        a_watch_from_a_compacted_revision_fails_and_at_its_edge_works,
        a_compaction_ends_the_watches_it_overtakes,
        a_slow_watcher_is_closed_not_skipped,
        polling_advances_over_other_kinds_changes,
        whoever_has_polled_everything_knows_it;
    linear:
        concurrent_writes_reads_and_watches_are_linearizable;
);
