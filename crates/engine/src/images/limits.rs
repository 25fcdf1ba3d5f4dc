//! Upper bounds for everything an image archive can make us read, keep or write.

/// A separate value (not constants used in place) so that tests can shrink them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Uncompressed bytes of one layer's tar stream, headers included: stops decompression bombs.
    pub(super) layer_bytes_max: u64,
    /// Uncompressed bytes of a whole archive, and of all its unpacked layers together.
    pub(super) import_bytes_max: u64,
    /// Files, directories and links one layer may create: stops inode bombs.
    pub(super) layer_entries_max: u64,
    /// Members of the outer archive.
    pub(super) members_max: usize,
    /// Layers of one image. The kernel stacks at most 500 (`OVL_MAX_STACK`).
    pub(super) layers_max: usize,
    /// Images of one archive.
    pub(super) images_max: usize,
    /// All JSON documents of an archive, each as often as it is read: every
    /// image has two, of a few KiB.
    pub(super) documents_bytes_max: u64,
}

pub(super) const LIMITS: Limits = Limits {
    layer_bytes_max: 32 << 30,
    import_bytes_max: 64 << 30,
    layer_entries_max: 2_000_000,
    members_max: 10_000,
    layers_max: 500,
    images_max: 256,
    documents_bytes_max: 256 << 20,
};

/// One JSON document of an archive; containerd reads at most 8 MiB too.
pub(super) const JSON_BYTES_MAX: u64 = 8 << 20;

/// What a document counts at least: reading it costs something, too.
pub(super) const DOCUMENT_BYTES_MIN: u64 = 4 << 10;

/// One extended tar header (PAX records, long names): Go's `archive/tar` bound.
pub(super) const TAR_EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// A member's path or link target; the kernel's `PATH_MAX`.
pub(super) const TAR_NAME_BYTES_MAX: usize = 4096;

/// Names of one layer's directories, kept until its end to set their times.
pub(super) const DIRECTORY_NAME_BYTES_MAX: u64 = 64 << 20;

/// The whole index of a node's images.
pub(super) const INDEX_BYTES_MAX: u64 = 256 << 20;

/// Indexes of indexes in an OCI layout; real ones have two levels.
pub(super) const INDEX_DEPTH_MAX: usize = 4;

const _: () = assert!(LIMITS.layer_bytes_max <= LIMITS.import_bytes_max);

/// What a token server answers.
pub(super) const TOKEN_BYTES_MAX: u64 = 1 << 20;

/// Layers of one image that are fetched at the same time; containerd's number.
pub(super) const PARALLEL_DOWNLOADS: usize = 3;

/// Attempts at one layer that bring nothing new, and attempts in all: a
/// registry that hands out single bytes must not keep us busy for ever.
pub(super) const FRUITLESS_ATTEMPTS_MAX: u32 = 5;
pub(super) const DOWNLOAD_ATTEMPTS_MAX: u32 = 50;
