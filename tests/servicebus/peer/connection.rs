//! A connection with its sessions and links, frame by frame.

use std::collections::HashMap;

use fe2o3_amqp::{
    frames::amqp::{Frame, FrameBody},
    transport::Transport,
    types::{
        definitions::{AmqpError, Error as Said, Handle, Role},
        messaging::{
            Accepted, AmqpValue, ApplicationProperties, Body, DeliveryState, Message, Properties, TargetArchetype,
            message::{__private::Serializable, DecodeIntoMessage},
        },
        performatives::{Attach, Begin, Close, Detach, Disposition, End, Flow, Open, Transfer},
        primitives::{Array, SimpleValue, Timestamp, Value},
    },
};
use futures_util::SinkExt;
use serde_amqp::read::SliceReader;
use tokio::{net::TcpStream, sync::mpsc};

use super::{
    FRAME_BYTES_MAX, Shared, locked,
    namespace::{Carried, Given, Place, Token},
};

/// What the standard tier takes.
const MESSAGE_BYTES_MAX: u64 = 256 << 10;
/// What may be on its way to it on one link.
const CREDIT: u32 = 200;
/// More than any test sends.
const WINDOW: u32 = 1 << 30;
const MANAGEMENT: &str = "/$management";
const RENEW: &str = "com.microsoft:renew-lock";

/// A link, as the other side has begun it, under the handle that it has there.
enum Link {
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
    links: HashMap<u32, Link>,
    /// What is locked by a delivery.
    locks: HashMap<u32, (String, Token)>,
}

pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) frames: Transport<TcpStream, Frame>,
    pub(super) shared: Shared,
    pub(super) gives: mpsc::UnboundedSender<Given>,
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
                locked(&self.shared).leave(|place| place.connection == number && place.channel == channel);
                self.say(channel, FrameBody::End(End { error: None })).await
            }
            FrameBody::Close(_) => {
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
        let session =
            Session { received: begin.next_outgoing_id, sent: 0, links: HashMap::new(), locks: HashMap::new() };
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
        let from = attach.source.as_ref().and_then(|source| source.address.clone()).unwrap_or_default().to_lowercase();
        let to = match attach.target.as_deref() {
            Some(TargetArchetype::Target(target)) => target.address.clone().unwrap_or_default(),
            _ => String::new(),
        };
        let comes = matches!(attach.role, Role::Sender);
        let link = {
            let namespace = locked(&self.shared);
            let has_management =
                |name: &str| name.strip_suffix(MANAGEMENT).is_some_and(|queue| namespace.is_queue(queue));
            let lower = to.to_lowercase();
            match comes {
                true if namespace.takes_messages(&lower) || has_management(&lower) => Some(Link::In {
                    to: lower,
                    count: attach.initial_delivery_count.unwrap_or(0),
                    credit: 0,
                    partial: None,
                }),
                false if namespace.is_queue(&from) => Some(Link::Out { queue: from.clone() }),
                false if has_management(&from) => Some(Link::Answers { to: to.clone() }),
                _ => None,
            }
        };
        let is_there = link.is_some();
        let (source, target) = match comes {
            true => (attach.source, attach.target.filter(|_| is_there)),
            false => (attach.source.filter(|_| is_there), attach.target),
        };
        let answer = Attach {
            name: attach.name,
            handle: handle.into(),
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
        self.say(channel, FrameBody::Attach(answer)).await?;
        let Some(link) = link else {
            let said = Said::new(AmqpError::NotFound, "there is no such entity".to_owned(), None);
            let detach = Detach { handle: handle.into(), closed: true, error: Some(said) };
            return self.say(channel, FrameBody::Detach(detach)).await;
        };
        if let Link::Out { queue } = &link {
            locked(&self.shared).attach(queue, Place { connection: self.number, channel, handle }, self.gives.clone());
        }
        self.sessions.get_mut(&channel)?.links.insert(handle, link);
        self.give_credit(channel, handle).await
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
        if let Some(Link::Out { queue }) = self.sessions.get(&channel)?.links.get(&handle) {
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
        match to.strip_suffix(MANAGEMENT) {
            Some(queue) => self.answer(channel, queue, &message).await?,
            None => locked(&self.shared).send(&to, message),
        }
        let disposition = Disposition {
            role: Role::Receiver,
            first: id,
            last: None,
            settled: true,
            state: Some(DeliveryState::Accepted(Accepted {})),
            batchable: false,
        };
        self.say(channel, FrameBody::Disposition(disposition)).await?;
        self.give_credit(channel, handle).await
    }

    /// Whether the locks that are named begin anew.
    async fn answer(&mut self, channel: u16, queue: &str, request: &Carried) -> Option<()> {
        let asked = request.properties.clone().unwrap_or_default();
        let operation = request
            .application_properties
            .as_ref()
            .and_then(|all| all.0.iter().find_map(|(name, value)| (name == "operation").then(|| value.clone())));
        assert_eq!(operation, Some(SimpleValue::String(RENEW.to_owned())));
        let tokens = tokens_of(request);
        let until = locked(&self.shared).renew(queue, &tokens);
        let status = if until.is_some() { 200 } else { 410 };
        let mut said = ApplicationProperties::default();
        said.insert("statusCode".to_owned(), SimpleValue::Int(status));
        let time = |millis| Value::Timestamp(Timestamp::from_milliseconds(millis));
        let times: Vec<Value> = tokens.iter().filter_map(|_| until.map(time)).collect();
        let entry = (Value::String("expirations".to_owned()), Value::Array(Array::from(times)));
        let body = if until.is_some() { Value::Map([entry].into_iter().collect()) } else { Value::Null };
        let answer = Message {
            header: None,
            delivery_annotations: None,
            message_annotations: None,
            properties: Some(Properties { correlation_id: asked.message_id, ..Properties::default() }),
            application_properties: Some(said),
            body: Body::Value(AmqpValue(body)),
            footer: None,
        };
        let links = &self.sessions.get(&channel)?.links;
        let to = asked.reply_to?;
        let handle = links.iter().find(|(_, link)| matches!(link, Link::Answers { to: its } if *its == to));
        let handle = *handle.unwrap_or_else(|| panic!("nobody hears answers at {to}")).0;
        self.transfer_out(channel, handle, &fastrand::u128(..).to_be_bytes(), &answer).await.map(drop)
    }

    pub(super) async fn give(&mut self, Given { place, queue, token, message }: Given) -> Option<()> {
        // Its session may have ended since; then its lock runs out.
        if !self.sessions.get(&place.channel).is_some_and(|session| session.links.contains_key(&place.handle)) {
            return Some(());
        }
        let id = self.transfer_out(place.channel, place.handle, &tag_of(token), &message).await?;
        self.sessions.get_mut(&place.channel)?.locks.insert(id, (queue, token));
        Some(())
    }

    /// The number of the delivery.
    async fn transfer_out(&mut self, channel: u16, handle: u32, tag: &[u8], message: &Carried) -> Option<u32> {
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
        // Of what it has sent itself there is nothing more to know.
        if matches!(disposition.role, Role::Sender) {
            return Some(());
        }
        let session = self.sessions.get_mut(&channel)?;
        for id in disposition.first..=disposition.last.unwrap_or(disposition.first) {
            if let (Some((queue, token)), Some(state)) = (session.locks.remove(&id), &disposition.state) {
                locked(&self.shared).settle(&queue, token, state);
            }
        }
        Some(())
    }

    async fn detach(&mut self, channel: u16, detach: Detach) -> Option<()> {
        let handle = detach.handle.0;
        // One that was refused has been left by this side already.
        if self.sessions.get_mut(&channel)?.links.remove(&handle).is_none() {
            return Some(());
        }
        let here = Place { connection: self.number, channel, handle };
        locked(&self.shared).leave(|place| place == here);
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

/// The locks that a request names.
fn tokens_of(request: &Carried) -> Vec<Token> {
    let Body::Value(AmqpValue(Value::Map(body))) = &request.body else { panic!("{:?}", request.body) };
    let tokens = body.iter().find(|(key, _)| **key == Value::String("lock-tokens".to_owned()));
    let Some((_, Value::Array(tokens))) = tokens else { panic!("no tokens: {body:?}") };
    let token = |value: &Value| match value {
        Value::Uuid(uuid) => *uuid.as_inner(),
        other => panic!("{other:?} is no token"),
    };
    tokens.iter().map(token).collect()
}
