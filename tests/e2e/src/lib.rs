//! End-to-end fixture.
