//! Words of nftables: matches and verdicts as the kernel wants them, and a
//! table replaced in one transaction, over netlink and without the `nft` program.
//!
//! `netlink-packet-netfilter` spells most messages; the expressions it does
//! not have yet (`nat`, `masq`, `fib`, `ct`) are spelled here by their numbers
//! from the kernel's `linux/netfilter/nf_tables.h`.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload, Parseable,
};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, Hook, Immediate,
    InetHookNumber, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute,
    RuleMessage, TableAttribute, TableFlags, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{Socket, SocketAddr};

/// One thing a rule looks at or does; all must match, in order.
pub(super) type Step = ListAttribute<ExpressionAttribute>;

/// A chain with its rules; without a hook it is only jumped to.
pub(super) struct Chain {
    pub(super) name: &'static str,
    pub(super) hook: Option<ChainHook>,
    pub(super) rules: Vec<Vec<Step>>,
}

#[derive(Clone, Copy)]
pub(super) struct ChainHook {
    pub(super) kind: &'static str,
    pub(super) at: InetHookNumber,
    pub(super) priority: i32,
}

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Net {
    pub(super) address: Ipv4Addr,
    pub(super) prefix_length: u8,
}

/// Offsets in the IPv4 header.
#[derive(Clone, Copy)]
pub(super) enum Address {
    Source = 12,
    Destination = 16,
}

const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
/// Of TCP, UDP and SCTP alike.
const DESTINATION_PORT_OFFSET: u32 = 2;

pub(super) fn is_in(address: Address, net: Net) -> Vec<Step> {
    in_range(address, net, Operator::Equal)
}

pub(super) fn is_not_in(address: Address, net: Net) -> Vec<Step> {
    in_range(address, net, Operator::NotEqual)
}

fn in_range(address: Address, net: Net, operator: Operator) -> Vec<Step> {
    let mask = u32::MAX.checked_shl(32 - u32::from(net.prefix_length)).unwrap_or(0);
    let network = u32::from(net.address) & mask;
    vec![
        load(NETWORK_HEADER, address as u32, 4),
        masked(mask.to_be_bytes().to_vec()),
        compare(operator, network.to_be_bytes().to_vec()),
    ]
}

pub(super) fn is_to_port(protocol: u8, port: u16) -> Vec<Step> {
    let mut steps = meta(MetaKey::L4Proto, vec![protocol]);
    steps.push(load(TRANSPORT_HEADER, DESTINATION_PORT_OFFSET, 2));
    steps.push(compare(Operator::Equal, port.to_be_bytes().to_vec()));
    steps
}

pub(super) fn came_in_by(interface: &str) -> Vec<Step> {
    // The kernel compares the whole field.
    let mut name = interface.as_bytes().to_vec();
    name.resize(libc::IFNAMSIZ, 0);
    meta(MetaKey::Iifname, name)
}

/// The destination is an address of this machine (`fib daddr type local`).
pub(super) fn is_to_this_machine() -> Vec<Step> {
    const DREG: u16 = 1;
    const RESULT: u16 = 2;
    const FLAGS: u16 = 3;
    const RESULT_ADDRTYPE: u32 = 3;
    const FLAG_DADDR: u32 = 2;
    let fib = other("fib", [(DREG, u32::from(Register::Reg1)), (RESULT, RESULT_ADDRTYPE), (FLAGS, FLAG_DADDR)]);
    let local = u32::from(libc::RTN_LOCAL).to_ne_bytes().to_vec();
    vec![fib, compare(Operator::Equal, local)]
}

/// The connection's destination was translated (`ct status dnat`).
pub(super) fn was_redirected() -> Vec<Step> {
    const DREG: u16 = 1;
    const KEY: u16 = 2;
    const KEY_STATUS: u32 = 2;
    const STATUS_DST_NAT: u32 = 1 << 5;
    let status = other("ct", [(DREG, u32::from(Register::Reg1)), (KEY, KEY_STATUS)]);
    vec![status, masked(STATUS_DST_NAT.to_ne_bytes().to_vec()), compare(Operator::NotEqual, vec![0; 4])]
}

pub(super) fn masquerade() -> Step {
    other("masq", [])
}

/// Sends the connection to this address and port.
pub(super) fn redirect(address: Ipv4Addr, port: u16) -> Vec<Step> {
    const TYPE: u16 = 1;
    const FAMILY: u16 = 2;
    const ADDRESS_REGISTER: u16 = 3;
    const PORT_REGISTER: u16 = 5;
    const TYPE_DNAT: u32 = 1;
    let family = u32::from(u8::from(NetfilterProtoFamily::IPv4));
    let registers = [(ADDRESS_REGISTER, u32::from(Register::Reg1)), (PORT_REGISTER, u32::from(Register::Reg2))];
    vec![
        set(Register::Reg1, DataAttribute::Value(address.octets().to_vec())),
        set(Register::Reg2, DataAttribute::Value(port.to_be_bytes().to_vec())),
        other("nat", [(TYPE, TYPE_DNAT), (FAMILY, family)].into_iter().chain(registers)),
    ]
}

pub(super) fn drop_it() -> Step {
    const NF_DROP: u32 = 0;
    set(Register::Verdict, DataAttribute::Verdict(vec![VerdictAttribute::Code(Verdict::Other(NF_DROP))]))
}

pub(super) fn jump(chain: &str) -> Step {
    let verdict = vec![VerdictAttribute::Code(Verdict::Jump), VerdictAttribute::Chain(chain.to_owned())];
    set(Register::Verdict, DataAttribute::Verdict(verdict))
}

fn load(base: u32, offset: u32, length: u32) -> Step {
    let place = vec![
        Payload::DestinationRegister(Register::Reg1),
        Payload::Base(base),
        Payload::Offset(offset),
        Payload::Len(length),
    ];
    Expressions::Payload(place).into()
}

fn meta(key: MetaKey, expected: Vec<u8>) -> Vec<Step> {
    let load = Expressions::Meta(vec![Meta::Key(key), Meta::DestinationRegister(Register::Reg1)]);
    vec![load.into(), compare(Operator::Equal, expected)]
}

fn masked(mask: Vec<u8>) -> Step {
    let zero = vec![0; mask.len()];
    let and = vec![
        Bitwise::SourceRegister(Register::Reg1),
        Bitwise::DestinationRegister(Register::Reg1),
        Bitwise::Length(4),
        Bitwise::Mask(DataAttribute::Value(mask)),
        Bitwise::Xor(DataAttribute::Value(zero)),
    ];
    Expressions::Bitwise(and).into()
}

fn compare(operator: Operator, expected: Vec<u8>) -> Step {
    let compare =
        vec![Cmp::SourceRegister(Register::Reg1), Cmp::Op(operator), Cmp::Data(DataAttribute::Value(expected))];
    Expressions::Cmp(compare).into()
}

fn set(register: Register, data: DataAttribute) -> Step {
    Expressions::Immediate(vec![Immediate::DestinationRegister(register), Immediate::Data(data)]).into()
}

fn other(name: &str, attributes: impl IntoIterator<Item = (u16, u32)>) -> Step {
    let attributes =
        attributes.into_iter().map(|(kind, value)| DefaultNla::new(kind, value.to_be_bytes().to_vec())).collect();
    Expressions::Other { expression_type: name.to_owned(), attributes }.into()
}

/// A connection to the firewall of the namespace it was opened in.
pub(super) struct Firewall {
    socket: Socket,
}

impl Firewall {
    pub(super) fn open() -> io::Result<Firewall> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Answers are there when sending returns; reading must not wait for more.
        socket.set_non_blocking(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size_force(socket.as_fd(), BATCH_BYTES_MAX)?;
        Ok(Firewall { socket })
    }

    /// The table is this from now on, all of it at one instant.
    pub(super) fn replace(&self, table: &str, chains: &[Chain]) -> io::Result<()> {
        let mut messages = removal(table);
        messages.push(new_table(table));
        messages.extend(chains.iter().map(|chain| (NLM_F_CREATE, new_chain(table, chain))));
        for chain in chains {
            let rules = chain.rules.iter().map(|rule| (NLM_F_CREATE | NLM_F_APPEND, new_rule(table, chain.name, rule)));
            messages.extend(rules);
        }
        self.commit(messages)
    }

    pub(super) fn remove(&self, table: &str) -> io::Result<()> {
        self.commit(removal(table))
    }

    fn commit(&self, messages: Vec<(u16, NfTablesMessage)>) -> io::Result<()> {
        let mut batch = Vec::new();
        push(&mut batch, control(ControlMessage::BatchBegin), NLM_F_REQUEST);
        let last = messages.len().saturating_sub(1);
        for (index, (flags, message)) in messages.into_iter().enumerate() {
            // Failures are always told; success of the last is success of all.
            let ack = if index == last { NLM_F_ACK } else { 0 };
            let header = NetfilterHeader::new(NetfilterProtoFamily::IPv4, 0, 0);
            push(&mut batch, NetfilterMessage::new(header, message), NLM_F_REQUEST | flags | ack);
        }
        push(&mut batch, control(ControlMessage::BatchEnd), NLM_F_REQUEST);
        self.socket.send(&batch, 0)?;
        self.answer()
    }

    fn answer(&self) -> io::Result<()> {
        let mut is_done = false;
        loop {
            let mut buffer = bytes::BytesMut::with_capacity(ANSWER_BYTES_MAX);
            match self.socket.recv(&mut buffer, 0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                outcome => outcome?,
            };
            is_done |= read_answer(&buffer)?;
        }
        if is_done { Ok(()) } else { Err(io::Error::other("the kernel did not answer")) }
    }
}

/// Is it the last one's confirmation?
fn read_answer(datagram: &[u8]) -> io::Result<bool> {
    let unreadable = |error: netlink_packet_core::DecodeError| io::Error::other(error.to_string());
    let frame = NetlinkBuffer::new_checked(&datagram).map_err(unreadable)?;
    match NetlinkMessage::<NetfilterMessage>::parse(&frame).map_err(unreadable)?.payload {
        NetlinkPayload::Error(error) => match error.code {
            None => Ok(true),
            Some(_) => Err(error.to_io()),
        },
        _ => Ok(false),
    }
}

/// Whether it was there or not.
fn removal(table: &str) -> Vec<(u16, NfTablesMessage)> {
    let name = || TableMessage { attributes: vec![TableAttribute::Name(table.to_owned())] };
    vec![new_table(table), (0, NfTablesMessage::DeleteTable(name()))]
}

fn new_table(table: &str) -> (u16, NfTablesMessage) {
    let attributes = vec![TableAttribute::Name(table.to_owned()), TableAttribute::Flags(TableFlags::default())];
    (NLM_F_CREATE, NfTablesMessage::NewTable(TableMessage { attributes }))
}

fn new_chain(table: &str, chain: &Chain) -> NfTablesMessage {
    let mut attributes = vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(chain.name.to_owned())];
    if let Some(hook) = chain.hook {
        attributes.push(ChainAttribute::Type(hook.kind.to_owned()));
        attributes.push(ChainAttribute::Hook(vec![
            Hook::Number(hook.at.into()),
            Hook::Priority(hook.priority.cast_unsigned()),
        ]));
    }
    NfTablesMessage::NewChain(ChainMessage { attributes })
}

fn new_rule(table: &str, chain: &str, steps: &[Step]) -> NfTablesMessage {
    let attributes = vec![
        RuleAttribute::Table(table.to_owned()),
        RuleAttribute::Chain(chain.to_owned()),
        RuleAttribute::Expressions(steps.to_vec()),
    ];
    NfTablesMessage::NewRule(RuleMessage { attributes })
}

fn control(message: ControlMessage) -> NetfilterMessage {
    const NFTABLES: u16 = 10;
    NetfilterMessage::new(NetfilterHeader::new(NetfilterProtoFamily::Unspec, 0, NFTABLES), message)
}

fn push(batch: &mut Vec<u8>, message: NetfilterMessage, flags: u16) {
    let mut message = NetlinkMessage::from(message);
    message.header.flags = flags;
    message.finalize();
    let start = batch.len();
    batch.resize(start + message.buffer_len(), 0);
    message.emit(&mut batch[start..]);
}

/// A rule takes about 450 bytes.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// An error carries the message it is about.
const ANSWER_BYTES_MAX: usize = 64 << 10;
