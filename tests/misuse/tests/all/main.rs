//! A hostile tenant against the real binary: one test for each attack, one file
//! for each class. Each must be refused, or served at its price, while a
//! bystander notices nothing and the cluster goes on.

mod bombs;
mod closed;
mod connections;
mod namespaces;
mod parsers;
