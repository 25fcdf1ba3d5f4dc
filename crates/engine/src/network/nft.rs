//! Words of nftables: matches and verdicts as the kernel wants them, and a
//! table replaced in one transaction, over netlink and without the `nft` program.
//!
//! `netlink-packet-netfilter` spells most messages; the expressions it does
//! not have yet (`nat`, `masq`, `fib`, `ct`) are spelled here by their numbers
//! from the kernel's `linux/netfilter/nf_tables.h`.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkBuffer,
    NetlinkMessage, NetlinkPayload, Parseable,
};
use netlink_packet_netfilter::nftables::{
    Bitwise, ChainAttribute, ChainMessage, Cmp, DataAttribute, ExpressionAttribute, Expressions, Hook, HookNumber,
    Immediate, ListAttribute, Meta, MetaKey, NfTablesMessage, Operator, Payload, Register, RuleAttribute, RuleMessage,
    TableAttribute, TableFlags, TableMessage, Verdict, VerdictAttribute,
};
use netlink_packet_netfilter::none::ControlMessage;
use netlink_packet_netfilter::{NetfilterHeader, NetfilterMessage, NetfilterProtoFamily};
use rtnetlink::sys::protocols::NETLINK_NETFILTER;
use rtnetlink::sys::{Socket, SocketAddr};

/// One thing a rule looks at or does; all must match, in order.
pub(super) type Step = ListAttribute<ExpressionAttribute>;

/// A chain with its rules; without a hook it is only jumped to.
pub(super) struct Chain {
    pub(super) name: String,
    pub(super) hook: Option<ChainHook>,
    pub(super) rules: Vec<Vec<Step>>,
}

pub(super) struct ChainHook {
    pub(super) kind: &'static str,
    pub(super) at: HookNumber,
    pub(super) priority: i32,
    /// In tables of `Family::Device`: whose frames these are.
    pub(super) device: Option<String>,
}

/// What a table sees: packets of IPv4, or every frame of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Ip,
    Device,
}

impl From<Family> for NetfilterProtoFamily {
    fn from(family: Family) -> Self {
        match family {
            Family::Ip => Self::IPv4,
            Family::Device => Self::NetDev,
        }
    }
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

const LINK_HEADER: u32 = 0;
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

/// The Ethernet header has these bytes there.
pub(super) fn has_in_frame(offset: u32, expected: &[u8]) -> Vec<Step> {
    in_header(LINK_HEADER, offset, Operator::Equal, expected)
}

pub(super) fn has_not_in_frame(offset: u32, expected: &[u8]) -> Vec<Step> {
    in_header(LINK_HEADER, offset, Operator::NotEqual, expected)
}

/// The header behind it (IPv4, ARP) has these bytes there; what is too short has not.
pub(super) fn has_in_packet(offset: u32, expected: &[u8]) -> Vec<Step> {
    in_header(NETWORK_HEADER, offset, Operator::Equal, expected)
}

fn in_header(header: u32, offset: u32, operator: Operator, expected: &[u8]) -> Vec<Step> {
    vec![load(header, offset, expected.len() as u32), compare(operator, expected.to_vec())]
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
    verdict(NF_DROP)
}

pub(super) fn accept() -> Step {
    const NF_ACCEPT: u32 = 1;
    verdict(NF_ACCEPT)
}

fn verdict(code: u32) -> Step {
    set(Register::Verdict, DataAttribute::Verdict(vec![VerdictAttribute::Code(Verdict::Other(code))]))
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
    /// One at a time: an answer is for whoever asked last.
    socket: Mutex<Socket>,
}

impl Firewall {
    pub(super) fn open() -> io::Result<Firewall> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Answers are there when sending returns; reading must not wait for more.
        socket.set_non_blocking(true)?;
        rustix::net::sockopt::set_socket_send_buffer_size_force(socket.as_fd(), BATCH_BYTES_MAX)?;
        Ok(Firewall { socket: Mutex::new(socket) })
    }

    /// The table is this from now on, all of it at one instant.
    pub(super) fn replace(&self, family: Family, table: &str, chains: &[Chain]) -> io::Result<()> {
        let mut messages = removal(table);
        messages.push(new_table(table));
        messages.extend(additions(table, chains));
        self.commit(family, messages)
    }

    /// One chain of the table is this from now on; the others stay.
    pub(super) fn replace_chain(&self, family: Family, table: &str, chain: &Chain) -> io::Result<()> {
        let add = || {
            let added = additions(table, std::slice::from_ref(chain));
            self.commit(family, std::iter::once(new_table(table)).chain(added).collect())
        };
        match add() {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.remove_chain(family, table, &chain.name)?;
                add()
            }
            outcome => outcome,
        }
    }

    pub(super) fn remove(&self, family: Family, table: &str) -> io::Result<()> {
        self.commit(family, removal(table))
    }

    /// That it is gone already, e.g. with its device, is fine.
    pub(super) fn remove_chain(&self, family: Family, table: &str, chain: &str) -> io::Result<()> {
        let attributes = vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(chain.to_owned())];
        match self.commit(family, vec![(0, NfTablesMessage::DeleteChain(ChainMessage { attributes }))]) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        }
    }

    fn commit(&self, family: Family, messages: Vec<(u16, NfTablesMessage)>) -> io::Result<()> {
        let mut batch = Vec::new();
        push(&mut batch, control(ControlMessage::BatchBegin), NLM_F_REQUEST);
        let last = messages.len().saturating_sub(1);
        for (index, (flags, message)) in messages.into_iter().enumerate() {
            // Failures are always told; success of the last is success of all.
            let ack = if index == last { NLM_F_ACK } else { 0 };
            let header = NetfilterHeader::new(family.into(), 0, 0);
            push(&mut batch, NetfilterMessage::new(header, message), NLM_F_REQUEST | flags | ack);
        }
        push(&mut batch, control(ControlMessage::BatchEnd), NLM_F_REQUEST);
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.send(&batch, 0)?;
        answer(|buffer| socket.recv(buffer, 0))
    }
}

/// All that is there must be read, or the next to ask would take it for his.
fn answer(mut receive: impl FnMut(&mut bytes::BytesMut) -> io::Result<usize>) -> io::Result<()> {
    let mut outcome = Err(io::Error::other("the kernel did not answer"));
    let mut is_refused = false;
    for _ in 0..ANSWERS_MAX {
        let mut buffer = bytes::BytesMut::with_capacity(ANSWER_BYTES_MAX);
        let told = match receive(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return outcome,
            // Answers were lost, for one: what was done is not known, and the others still wait.
            Err(error) => Err(error),
            Ok(_) => read_answer(&buffer),
        };
        match told {
            Ok(false) => {}
            _ if is_refused => {}
            Ok(true) => outcome = Ok(()),
            Err(error) => {
                is_refused = true;
                outcome = Err(error);
            }
        }
    }
    outcome
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

/// All chains before the first rule: rules name chains.
fn additions(table: &str, chains: &[Chain]) -> Vec<(u16, NfTablesMessage)> {
    let mut messages: Vec<_> =
        chains.iter().map(|chain| (NLM_F_CREATE | NLM_F_EXCL, new_chain(table, chain))).collect();
    for chain in chains {
        let rules = chain.rules.iter().map(|rule| (NLM_F_CREATE | NLM_F_APPEND, new_rule(table, &chain.name, rule)));
        messages.extend(rules);
    }
    messages
}

fn new_chain(table: &str, chain: &Chain) -> NfTablesMessage {
    let mut attributes = vec![ChainAttribute::Table(table.to_owned()), ChainAttribute::Name(chain.name.clone())];
    if let Some(hook) = &chain.hook {
        attributes.push(ChainAttribute::Type(hook.kind.to_owned()));
        let mut place = vec![Hook::Number(hook.at), Hook::Priority(hook.priority.cast_unsigned())];
        place.extend(hook.device.clone().map(Hook::NetDeviceName));
        attributes.push(ChainAttribute::Hook(place));
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
/// More than a batch has messages: whoever has so much to say says it for ever.
const ANSWERS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel says to one message; 0: it is done.
    fn told(code: i32) -> Vec<u8> {
        let header = |length: u32, kind: u16| [&length.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        [header(36, 2), code.to_ne_bytes().to_vec(), header(16, 0)].concat()
    }

    #[test]
    fn whatever_goes_wrong_no_answer_is_left_for_the_next() {
        let lost = || Err(io::Error::from_raw_os_error(rustix::io::Errno::NOBUFS.raw_os_error()));
        let empty = || Err(io::ErrorKind::WouldBlock.into());
        for (answers, expected) in [
            (vec![Ok(told(0))], None),
            (vec![Ok(told(-17)), Ok(told(0))], Some(io::ErrorKind::AlreadyExists)),
            (vec![lost(), Ok(told(-17)), Ok(told(0))], Some(lost_kind())),
            (vec![Ok(told(-17)), lost(), Ok(told(-2))], Some(io::ErrorKind::AlreadyExists)),
        ] {
            let mut left = answers.into_iter();
            let outcome = answer(|buffer| {
                let datagram: Vec<u8> = left.next().unwrap_or_else(empty)?;
                buffer.extend_from_slice(&datagram);
                Ok(datagram.len())
            });
            assert_eq!(outcome.err().map(|error| error.kind()), expected);
            assert_eq!(left.count(), 0, "all was read");
        }
    }

    fn lost_kind() -> io::ErrorKind {
        io::Error::from_raw_os_error(rustix::io::Errno::NOBUFS.raw_os_error()).kind()
    }
}
