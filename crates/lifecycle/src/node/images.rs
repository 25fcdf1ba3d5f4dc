//! Which images go when the disk fills up (TC §14.2).

use std::time::Duration;

use ambient::{Mono, Now, Timestamp};

use crate::node::{Node, NodeAction, NodePlan, Settings};
use crate::state::Severity;

const CHECK_PERIOD: Duration = Duration::from_secs(300);

/// What the image store holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageStock {
    pub capacity_bytes: i64,
    pub available_bytes: i64,
    pub images: Vec<ImageSeen>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageSeen {
    pub id: String,
    pub size_bytes: i64,
    pub is_used: bool,
    /// Never removed.
    pub is_pinned: bool,
    pub first_seen: Timestamp,
    /// `None`: no container used it since the agent knows it.
    pub last_used: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub(super) struct Images {
    check_at: Mono,
    doomed: Vec<String>,
}

impl Images {
    pub(super) fn new(now: Now) -> Self {
        Self { check_at: now.mono + CHECK_PERIOD, doomed: Vec::new() }
    }

    pub(super) fn postpone(&mut self, now: Now) {
        self.check_at = now.mono + CHECK_PERIOD;
    }
}

impl Node {
    pub(super) fn plan_images(&self, plan: &mut NodePlan, now: Now) {
        if !self.images.doomed.is_empty() {
            plan.actions.push(NodeAction::RemoveImages(self.images.doomed.clone()));
        } else if self.images.check_at <= now.mono {
            plan.actions.push(NodeAction::ListImages);
        } else {
            plan.wake(self.images.check_at);
        }
    }

    pub(super) fn on_images(&mut self, stock: &ImageStock, now: Now) {
        self.images.postpone(now);
        let ImageCollection { doomed, wanted_bytes, found_bytes } = collect_images(stock, &self.settings, now);
        if found_bytes < wanted_bytes {
            let message = format!(
                "Failed to garbage collect required amount of images. Attempted to free {wanted_bytes} bytes, but only \
                 found {found_bytes} bytes eligible to free."
            );
            self.note(Severity::Warning, "FreeDiskSpaceFailed", message);
        }
        self.images.doomed = doomed;
    }

    pub(super) fn on_images_removed(&mut self) {
        self.images.doomed.clear();
        self.in_flight.retain(|action| !matches!(action, NodeAction::RemoveImages(_)));
    }
}

/// Which images shall go, and what that brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageCollection {
    /// Ids, the one to go first first.
    pub doomed: Vec<String>,
    pub wanted_bytes: i64,
    /// What those that may go would free, up to what is wanted.
    pub found_bytes: i64,
}

/// Above the high mark, images go until the low mark is reached; those that
/// are too old go anyway.
pub fn collect_images(stock: &ImageStock, settings: &Settings, now: Now) -> ImageCollection {
    let mut unused: Vec<&ImageSeen> = stock.images.iter().filter(|it| !it.is_used && !it.is_pinned).collect();
    unused.sort_by_key(|image| (image.last_used.unwrap_or(image.first_seen), image.first_seen, image.id.clone()));
    let age = |since: Timestamp| now.mono.since(now.mono_of(since));
    let is_stale = |image: &&&ImageSeen| {
        settings.image_max_age.is_some_and(|max| age(image.last_used.unwrap_or(image.first_seen)) > max)
    };
    let mut doomed: Vec<String> = unused.iter().filter(is_stale).map(|image| image.id.clone()).collect();
    let wanted_bytes = bytes_to_free(stock, settings);
    let mut found_bytes = 0;
    for image in unused.iter().filter(|image| age(image.first_seen) >= settings.image_min_age) {
        if found_bytes >= wanted_bytes {
            break;
        }
        found_bytes += image.size_bytes;
        if !doomed.contains(&image.id) {
            doomed.push(image.id.clone());
        }
    }
    ImageCollection { doomed, wanted_bytes, found_bytes }
}

fn bytes_to_free(stock: &ImageStock, settings: &Settings) -> i64 {
    let ImageStock { capacity_bytes: capacity, available_bytes: available, .. } = *stock;
    let available = available.clamp(0, capacity.max(0));
    if capacity <= 0 {
        return 0;
    }
    let used_percent = 100 - available * 100 / capacity;
    if used_percent < i64::from(settings.image_high_percent) {
        return 0;
    }
    (capacity * (100 - i64::from(settings.image_low_percent)) / 100 - available).max(0)
}
