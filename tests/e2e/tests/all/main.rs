//! The shipped binary on a real kernel, driven by the real kubectl.
//!
//! One file per question a user asks: do the documents' examples run (`documents`), does a pod live and die as it should
//! (`life`), is it restarted as asked (`restarts`), is it asked how it is
//! (`probes`) and told what happens to it (`hooks`), what about wrong input
//! (`refusals`), where do images come from (`images`), how is it reached (`network`) and told of others (`services`),
//! how does one look into it (`streams`), how far is it from the node (`isolation`), what can be configured (`gates`), what the node decides
//! about all of them (`node`, `resize`, `statics`), what survives when the agent does not (`agent`, `chaos`) or the disk is
//! slow (`slow_disk`), does it all work with other parts (`elsewhere`), who else may use the runtime (`cri`), and does every
//! client get along with the API (`clients`, `programs`).

mod agent;
mod chaos;
mod clients;
mod cri;
mod documents;
mod elsewhere;
mod gates;
mod hooks;
mod images;
mod isolation;
mod life;
mod network;
mod node;
mod node_loss;
mod permissions;
mod probes;
mod programs;
mod refusals;
mod resize;
mod restarts;
mod services;
mod slow_disk;
mod statics;
mod streams;
mod volumes;
