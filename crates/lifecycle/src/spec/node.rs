//! Reads a Node object.
