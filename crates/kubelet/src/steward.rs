//! The loop of the node: what concerns all pods at once (LC-372, TC §7.4 to
//! §8). Tells `lifecycle::node` what happened, does what it plans, and hands
//! its verdicts to pods.
//!
//! Never: a decision; those are in `lifecycle::node`. A pod's status; its
//! worker draws the consequences of a verdict.

use std::sync::Arc;

use ambient::{Mono, Now};
use client::About;
use lifecycle::node::{Node, NodeAction, NodeCondition, NodeFact, NodeInfo, NodeNote};
use lifecycle::{Fact, Severity};
use objects::api::core::v1::{Node as ApiNode, Pod};
use tokio::sync::{mpsc, watch};

use crate::classes::{self, Classes};
use crate::ctx::Ctx;
use crate::measure::{self, Depth};
use crate::node;
use crate::stock::Stock;

/// The way to tell the node something. At most one message per pod that stops
/// and per action under way, and what operators announce.
#[derive(Debug, Clone)]
pub(crate) struct NodeLine(mpsc::UnboundedSender<NodeFact>);

impl NodeLine {
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<NodeFact>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Nobody listens any more only while the agent stops.
    pub(crate) fn tell(&self, fact: NodeFact) {
        let _ = self.0.send(fact);
    }
}

/// What the Node object shows of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Face {
    pub(crate) conditions: Vec<NodeCondition>,
    /// The machine may stop: no pod is waited for.
    pub(crate) has_shut_down: bool,
}

pub(crate) struct Steward {
    ctx: Arc<Ctx>,
    node: Node,
    news: mpsc::UnboundedReceiver<NodeFact>,
    stock: Arc<Stock>,
    face: watch::Sender<Face>,
    classes: watch::Sender<Classes>,
    wake_at: Option<Mono>,
}

impl Steward {
    pub(crate) fn new(ctx: Arc<Ctx>, news: mpsc::UnboundedReceiver<NodeFact>, face: watch::Sender<Face>) -> Self {
        let now = ctx.clock.now();
        let mut node = Node::new(ctx.config.settings.clone(), now);
        node.absorb(NodeFact::InfoChanged(NodeInfo::parse(&node::initial(&ctx))), now);
        let classes = watch::Sender::new(node.class_cgroups());
        tokio::spawn(classes::keep(ctx.clone(), classes.subscribe()));
        let steward = Self { ctx, node, news, stock: Arc::default(), face, classes, wake_at: None };
        steward.show();
        steward
    }

    pub(crate) fn absorb(&mut self, fact: NodeFact) {
        self.node.absorb(fact, self.ctx.clock.now());
    }

    /// The Node object as the API has it; `None`: it has none.
    pub(crate) fn on_node(&mut self, node: Option<&ApiNode>) {
        let info = match node {
            Some(node) => NodeInfo::parse(&node::with_own_amounts(&self.ctx, node)),
            None => NodeInfo::parse(&node::initial(&self.ctx)),
        };
        self.absorb(NodeFact::InfoChanged(info));
    }

    /// Does all that is due; answers with what pods are to be told.
    pub(crate) fn settle(&mut self, pods: impl Fn() -> Vec<Arc<Pod>>) -> Vec<(String, Fact)> {
        let now = self.ctx.clock.now();
        self.node.pass_time(now);
        let plan = self.node.plan(now);
        for action in plan.actions {
            self.node.absorb(NodeFact::Begun(action.clone()), now);
            self.begin(action, pods());
        }
        self.wake_at = plan.wake_at;
        for note in self.node.take_notes() {
            self.tell(&note, now);
        }
        self.show();
        self.node.take_facts()
    }

    fn show(&self) {
        let face = Face { conditions: self.node.conditions(), has_shut_down: self.node.has_shut_down() };
        self.face.send_if_modified(|shown| std::mem::replace(shown, face.clone()) != face);
        let classes = self.node.class_cgroups();
        self.classes.send_if_modified(|wanted| std::mem::replace(wanted, classes.clone()) != classes);
    }

    /// Returns when there is something to settle.
    pub(crate) async fn arrival(&mut self) {
        let rest = self.wake_at.map(|at| at.since(self.ctx.clock.now().mono).max(crate::worker::TICK));
        let alarm = async {
            match rest {
                Some(rest) => tokio::time::sleep(rest).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(fact) = self.news.recv() => self.absorb(fact),
            () = alarm => {}
        }
    }

    /// Every action becomes a task that ends in one fact.
    fn begin(&self, action: NodeAction, pods: Vec<Arc<Pod>>) {
        let (ctx, stock) = (self.ctx.clone(), self.stock.clone());
        tracing::debug!(?action, "the node begins");
        tokio::spawn(async move {
            let answer = match &action {
                NodeAction::Measure => measure::measure(&ctx, pods, Depth::Limited).await.map(NodeFact::Measured),
                NodeAction::Reclaim => {
                    stock.reclaim(&ctx, &pods).await;
                    measure::measure(&ctx, pods, Depth::Whole).await.map(NodeFact::Reclaimed)
                }
                NodeAction::ListImages => stock.list(&ctx).await.map(NodeFact::ImagesListed),
                NodeAction::RemoveImages(doomed) => {
                    stock.remove(&ctx, doomed).await;
                    Ok(NodeFact::ImagesRemoved)
                }
            };
            ctx.node.tell(answer.unwrap_or_else(|error| {
                tracing::warn!(?action, %error, "the node could not do it");
                NodeFact::Failed(action)
            }));
        });
    }

    fn tell(&self, note: &NodeNote, now: Now) {
        let severity = match note.severity {
            Severity::Normal => client::Severity::Normal,
            Severity::Warning => client::Severity::Warning,
        };
        self.ctx.recorder.record(about_node(&self.ctx), severity, note.reason, &note.message, now);
    }
}

/// Upstream's events about a node carry its name for its UID; `kubectl
/// describe node` looks for both.
pub(crate) fn about_node(ctx: &Ctx) -> About {
    About { uid: ctx.config.node_name.clone(), ..About::object(&node::initial(ctx)) }
}
