//! A hostile tenant against the real binary: one test for each attack, one file
//! for each class. Each must be refused, or served at its price, while a
//! bystander notices nothing and the cluster goes on.

mod admission;
mod at_rest;
mod audit;
mod bombs;
mod closed;
mod connections;
mod namespaces;
mod parsers;
mod readable;
mod ways_in;
