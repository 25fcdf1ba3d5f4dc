//! Time, randomness and identifiers as values; and what became of tasks that
//! nobody waits for.
//!
//! The only crate that asks the operating system for any of the first three. Everyone
//! else receives a [`Now`], an [`Rng`] or an [`Ids`] as an argument, so that
//! the same code runs in production, in tests and in virtual time.
//!
//! ```
//! use ambient::{Clock, Now, Seconds};
//! let clock = Clock::manual();
//! let start: Now = clock.now();
//! clock.advance(Seconds(10).into());
//! assert_eq!((clock.now().mono - start.mono).as_secs(), 10);
//! ```

mod clock;
mod entropy;
mod ids;
mod panics;
mod rng;

pub use clock::{Clock, Mono, Now, Seconds};
pub use entropy::unguessable;
pub use ids::Ids;
pub use jiff::Timestamp;
pub use panics::Panics;
pub use rng::Rng;
