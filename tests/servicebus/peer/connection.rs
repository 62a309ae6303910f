//! A connection with its sessions and links, frame by frame.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use fe2o3_amqp::{
    frames::amqp::{Frame, FrameBody},
    transport::Transport,
    types::{
        definitions::{AmqpError, Error as Said, ErrorCondition, Handle, Role},
        messaging::{
            Accepted, Body, DeliveryState, Rejected, TargetArchetype,
            message::{__private::Serializable, DecodeIntoMessage},
        },
        performatives::{Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Transfer},
        primitives::{Symbol, Value},
    },
};
use futures_util::SinkExt;
use serde_amqp::read::SliceReader;
use tokio::{net::TcpStream, sync::mpsc};

use super::{
    FRAME_BYTES_MAX, Shared, locked,
    namespace::{Carried, Event, Given, Place, Token},
};

/// What the standard tier takes.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// What may be on its way to it on one link.
const CREDIT: u32 = 200;
/// More than any test sends.
const WINDOW: u32 = 1 << 30;
const MANAGEMENT: &str = "/$management";
const SESSION_FILTER: &str = "com.microsoft:session-filter";
/// How long a link waits for a session, in milliseconds, and what it says otherwise.
const TIMEOUT: &str = "com.microsoft:timeout";
const TIMEOUT_USUAL: u64 = 60_000;

/// A link, as the other side has begun it, under the handle that it has there.
pub(super) enum Link {
    /// Messages come.
    In { to: String, count: u32, credit: u32, partial: Option<(u32, Vec<u8>)> },
    /// Messages of a queue go out.
    Out { queue: String },
    /// Answers of a management node go out.
    Answers { to: String },
}

pub(super) struct Session {
    received: u32,
    sent: u32,
    pub(super) links: HashMap<u32, Link>,
    /// Links that wait for a session.
    waiting: HashMap<u32, Attach>,
    /// What is locked by a delivery.
    locks: HashMap<u32, (String, Token)>,
}

pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) frames: Transport<TcpStream, Frame>,
    pub(super) shared: Shared,
    pub(super) gives: mpsc::UnboundedSender<Event>,
    pub(super) sessions: HashMap<u16, Session>,
}

impl Connection {
    /// Nothing where that was the last one.
    pub(super) async fn take(&mut self, channel: u16, body: FrameBody) -> Option<()> {
        match body {
            FrameBody::Open(_) => {
                let open = Open {
                    container_id: "peer".to_owned(),
                    hostname: None,
                    max_frame_size: FRAME_BYTES_MAX.into(),
                    channel_max: u16::MAX.into(),
                    idle_time_out: None,
                    outgoing_locales: None,
                    incoming_locales: None,
                    offered_capabilities: None,
                    desired_capabilities: None,
                    properties: None,
                };
                self.say(channel, FrameBody::Open(open)).await
            }
            FrameBody::Begin(begin) => self.begin(channel, &begin).await,
            FrameBody::Attach(attach) => self.attach(channel, attach).await,
            FrameBody::Flow(flow) => self.flow(channel, &flow),
            FrameBody::Transfer { performative, payload } => self.transfer(channel, performative, &payload).await,
            FrameBody::Disposition(disposition) => self.disposed(channel, &disposition),
            FrameBody::Detach(detach) => self.detach(channel, detach).await,
            FrameBody::End(_) => {
                self.sessions.remove(&channel);
                let number = self.number;
                locked(&self.shared).leave(true, |place| place.connection == number && place.channel == channel);
                self.say(channel, FrameBody::End(End { error: None })).await
            }
            FrameBody::Close(_) => {
                let number = self.number;
                locked(&self.shared).leave(true, |place| place.connection == number);
                self.say(channel, FrameBody::Close(Close { error: None })).await?;
                None
            }
            FrameBody::Empty => Some(()),
        }
    }

    async fn say(&mut self, channel: u16, body: FrameBody) -> Option<()> {
        self.frames.send(Frame::new(channel, body)).await.ok()
    }

    async fn begin(&mut self, channel: u16, begin: &Begin) -> Option<()> {
        let session = Session {
            received: begin.next_outgoing_id,
            sent: 0,
            links: HashMap::new(),
            waiting: HashMap::new(),
            locks: HashMap::new(),
        };
        self.sessions.insert(channel, session);
        let begin = Begin {
            remote_channel: Some(channel),
            next_outgoing_id: 0,
            incoming_window: WINDOW,
            outgoing_window: WINDOW,
            handle_max: Handle::default(),
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        self.say(channel, FrameBody::Begin(begin)).await
    }

    async fn attach(&mut self, channel: u16, attach: Attach) -> Option<()> {
        let handle = attach.handle.0;
        let source = attach.source.as_deref();
        let from = source.and_then(|source| source.address.clone()).unwrap_or_default().to_lowercase();
        let filter = source.and_then(|source| source.filter.as_ref());
        let wants_session = filter.is_some_and(|all| all.iter().any(|(name, _)| name.as_str() == SESSION_FILTER));
        let to = match attach.target.as_deref() {
            Some(TargetArchetype::Target(target)) => target.address.clone().unwrap_or_default(),
            _ => String::new(),
        };
        let place = Place { connection: self.number, channel, handle };
        let link = {
            let mut namespace = locked(&self.shared);
            let is_there = namespace.is_queue(&from);
            let manages = |name: &str| name.strip_suffix(MANAGEMENT).is_some_and(|queue| namespace.is_queue(queue));
            if matches!(attach.role, Role::Sender) {
                let lower = to.to_lowercase();
                let count = attach.initial_delivery_count.unwrap_or(0);
                match namespace.takes_messages(&lower) || manages(&lower) {
                    true => Ok(Link::In { to: lower, count, credit: 0, partial: None }),
                    false => Err(AmqpError::NotFound),
                }
            } else if manages(&from) {
                Ok(Link::Answers { to })
            } else if !is_there {
                Err(AmqpError::NotFound)
            } else if namespace.has_sessions(&from) != wants_session {
                Err(AmqpError::NotAllowed)
            } else if wants_session {
                let wait = attach.properties.iter().flat_map(|all| all.iter()).find_map(|(name, value)| match value {
                    Value::Uint(millis) if name.as_str() == TIMEOUT => Some(u64::from(*millis)),
                    _ => None,
                });
                let until = Instant::now() + Duration::from_millis(wait.unwrap_or(TIMEOUT_USUAL));
                self.sessions.get_mut(&channel)?.waiting.insert(handle, attach);
                namespace.wait_for_session(&from, place, until, self.gives.clone());
                return Some(());
            } else {
                namespace.attach(&from, place, self.gives.clone());
                Ok(Link::Out { queue: from })
            }
        };
        match link {
            Ok(link) => {
                self.attached(channel, attach, true).await?;
                self.sessions.get_mut(&channel)?.links.insert(handle, link);
                self.give_credit(channel, handle).await
            }
            Err(error) => self.refuse(channel, attach, error.into()).await,
        }
    }

    /// Its own end is null where it refuses.
    async fn attached(&mut self, channel: u16, attach: Attach, is_there: bool) -> Option<()> {
        let comes = matches!(attach.role, Role::Sender);
        let (source, target) = match comes {
            true => (attach.source, attach.target.filter(|_| is_there)),
            false => (attach.source.filter(|_| is_there), attach.target),
        };
        let answer = Attach {
            name: attach.name,
            handle: attach.handle,
            role: if comes { Role::Receiver } else { Role::Sender },
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            source,
            target,
            unsettled: None,
            incomplete_unsettled: false,
            initial_delivery_count: (!comes).then_some(0),
            max_message_size: Some(MESSAGE_BYTES_MAX),
            offered_capabilities: None,
            desired_capabilities: None,
            properties: None,
        };
        self.say(channel, FrameBody::Attach(answer)).await
    }

    async fn refuse(&mut self, channel: u16, attach: Attach, condition: ErrorCondition) -> Option<()> {
        let handle = attach.handle.0;
        self.attached(channel, attach, false).await?;
        self.end_link(channel, handle, condition).await
    }

    async fn end_link(&mut self, channel: u16, handle: u32, condition: ErrorCondition) -> Option<()> {
        let said = Said::new(condition, "it is not as it was asked for".to_owned(), None);
        let detach = Detach { handle: handle.into(), closed: true, error: Some(said) };
        self.say(channel, FrameBody::Detach(detach)).await
    }

    /// Half of it is used before there is more.
    async fn give_credit(&mut self, channel: u16, handle: u32) -> Option<()> {
        let session = self.sessions.get_mut(&channel)?;
        let Some(Link::In { count, credit, .. }) = session.links.get_mut(&handle) else { return Some(()) };
        if *credit > CREDIT / 2 {
            return Some(());
        }
        *credit = CREDIT;
        let flow = Flow {
            next_incoming_id: Some(session.received),
            incoming_window: WINDOW,
            next_outgoing_id: session.sent,
            outgoing_window: WINDOW,
            handle: Some(handle.into()),
            delivery_count: Some(*count),
            link_credit: Some(CREDIT),
            available: None,
            drain: false,
            echo: false,
            properties: None,
        };
        self.say(channel, FrameBody::Flow(flow)).await
    }

    fn flow(&mut self, channel: u16, flow: &Flow) -> Option<()> {
        let Some(handle) = flow.handle.as_ref().map(|handle| handle.0) else { return Some(()) };
        let session = self.sessions.get(&channel);
        if let Some(Link::Out { queue }) = session.and_then(|session| session.links.get(&handle)) {
            let limit = flow.delivery_count.unwrap_or(0) + flow.link_credit.unwrap_or(0);
            locked(&self.shared).credit(queue, Place { connection: self.number, channel, handle }, limit);
        }
        Some(())
    }

    async fn transfer(&mut self, channel: u16, transfer: Transfer, payload: &[u8]) -> Option<()> {
        let (handle, session) = (transfer.handle.0, self.sessions.get_mut(&channel)?);
        session.received = session.received.wrapping_add(1);
        let Some(Link::In { to, count, credit, partial }) = session.links.get_mut(&handle) else { return None };
        let (id, mut bytes) = partial.take().unwrap_or_else(|| (transfer.delivery_id.unwrap_or(0), Vec::new()));
        bytes.extend_from_slice(payload);
        if transfer.more {
            *partial = Some((id, bytes));
            return Some(());
        }
        *count = count.wrapping_add(1);
        *credit = credit.saturating_sub(1);
        let to = to.clone();
        let message = <Body<Value>>::decode_message_from_reader(SliceReader::new(&bytes)).unwrap();
        let is_taken = match to.strip_suffix(MANAGEMENT) {
            Some(queue) => {
                self.answer(channel, queue, &message).await?;
                true
            }
            None => locked(&self.shared).send(&to, message),
        };
        let state = match is_taken {
            true => DeliveryState::Accepted(Accepted {}),
            false => DeliveryState::Rejected(Rejected { error: Some(AmqpError::NotAllowed.into()) }),
        };
        let disposition = Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled: true,
            state: Some(state),
            batchable: false,
        };
        self.say(channel, FrameBody::Disposition(disposition)).await?;
        self.give_credit(channel, handle).await
    }

    pub(super) async fn give(&mut self, event: Event) -> Option<()> {
        match event {
            Event::Message(given) => self.give_message(*given).await,
            Event::Session(Place { channel, handle, .. }, id) => {
                // Its session of AMQP may have ended since, and nobody waits for this one.
                let Some(session) = self.sessions.get_mut(&channel) else { return Some(()) };
                let Some(mut attach) = session.waiting.remove(&handle) else { return Some(()) };
                let source = attach.source.as_mut()?;
                let queue = source.address.clone()?.to_lowercase();
                source.filter = Some([(Symbol::from(SESSION_FILTER), Value::String(id))].into_iter().collect());
                session.links.insert(handle, Link::Out { queue });
                self.attached(channel, attach, true).await
            }
            Event::Ended(Place { channel, handle, .. }, why) => {
                let Some(session) = self.sessions.get_mut(&channel) else { return Some(()) };
                let condition = ErrorCondition::Custom(Symbol::from(why));
                if let Some(attach) = session.waiting.remove(&handle) {
                    return self.refuse(channel, attach, condition).await;
                }
                match session.links.remove(&handle) {
                    Some(_) => self.end_link(channel, handle, condition).await,
                    None => Some(()),
                }
            }
        }
    }

    async fn give_message(&mut self, Given { place, queue, token, message }: Given) -> Option<()> {
        // Its session may have ended since; then its lock runs out.
        if self.sessions.get(&place.channel).is_none_or(|session| !session.links.contains_key(&place.handle)) {
            return Some(());
        }
        let id = self.transfer_out(place.channel, place.handle, &tag_of(token), &message).await?;
        self.sessions.get_mut(&place.channel)?.locks.insert(id, (queue, token));
        Some(())
    }

    /// The number of the delivery.
    pub(super) async fn transfer_out(
        &mut self,
        channel: u16,
        handle: u32,
        tag: &[u8],
        message: &Carried,
    ) -> Option<u32> {
        let session = self.sessions.get_mut(&channel)?;
        let id = session.sent;
        session.sent = session.sent.wrapping_add(1);
        let performative = Transfer {
            handle: handle.into(),
            delivery_id: Some(id),
            delivery_tag: Some(tag.to_vec().into()),
            message_format: Some(0),
            settled: Some(false),
            more: false,
            rcv_settle_mode: None,
            state: None,
            resume: false,
            aborted: false,
            batchable: false,
        };
        let payload = serde_amqp::to_vec(&Serializable(message)).unwrap().into();
        self.say(channel, FrameBody::Transfer { performative, payload }).await?;
        Some(id)
    }

    fn disposed(&mut self, channel: u16, disposition: &Disposition) -> Option<()> {
        let Some(session) = self.sessions.get_mut(&channel) else { return Some(()) };
        // Of what it has sent itself there is nothing more to know.
        if matches!(disposition.role, Role::Sender) {
            return Some(());
        }
        for id in disposition.first..=disposition.last.unwrap_or(disposition.first) {
            if let (Some((queue, token)), Some(state)) = (session.locks.remove(&id), &disposition.state) {
                locked(&self.shared).settle(&queue, token, state);
            }
        }
        Some(())
    }

    async fn detach(&mut self, channel: u16, detach: Detach) -> Option<()> {
        let handle = detach.handle.0;
        let Some(session) = self.sessions.get_mut(&channel) else { return Some(()) };
        // One that was refused has been left by this side already.
        if session.links.remove(&handle).is_none() && session.waiting.remove(&handle).is_none() {
            return Some(());
        }
        let here = Place { connection: self.number, channel, handle };
        locked(&self.shared).leave(true, |place| place == here);
        let answer = Detach { handle: detach.handle, closed: detach.closed, error: None };
        self.say(channel, FrameBody::Detach(answer)).await
    }
}

/// A delivery's tag: the first three parts of a GUID are turned around in .NET's bytes.
fn tag_of(token: Token) -> [u8; 16] {
    let mut tag = token;
    for (place, from) in [3, 2, 1, 0, 5, 4, 7, 6].into_iter().enumerate() {
        tag[place] = token[from];
    }
    tag
}
