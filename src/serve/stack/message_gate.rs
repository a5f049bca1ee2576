//! Counts the messages that a client sends over a WebSocket. Each message takes a unit of the limits on messages before
//! any of it passes. The first message that a limit refuses ends the connection. A leaky bucket first delays messages. The
//! payload of frames passes as it comes; a header is held back until it is whole and its message admitted.
//!
//! Control frames and the further frames of a message take no unit. A frame that servers could read in another way ends
//! the connection: one without a mask, or with an invalid length. If all limits are shadow limits, it passes with all
//! bytes after it, uncounted.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http_body::Frame;
use tokio::time::Sleep;

use super::body::{EarlyClose, PolledFrame, SharedClose, TunnelGate};
use super::record_verdict::{count_findings, record_verdict};
use super::request_context::RequestContext;
use crate::base::clock::Nanos;
use crate::http::websocket_frames::{CLOSE, CONTINUATION, FrameHeader, parse_header};
use crate::identity::ClientIdentity;
use crate::limit::{CountMode, Rule};
use crate::throttle::admission::{
    AdmissionOutcome, AdmissionRequest, PendingDecision, PreparedDecision, Verdict,
};

/// The limits on the messages of one client.
pub struct MessageLimits {
    rules: Box<[Arc<Rule>]>,
    client: Rc<ClientIdentity>,
    /// The context of the request that has opened the WebSocket.
    context: Rc<RequestContext>,
    /// The index of the upstream whose pressure elastic limits depend on.
    upstream_index: usize,
    /// The keys of the limits, which are the same for each message.
    prepared_decision: PreparedDecision,
}

impl MessageLimits {
    /// The limits on messages among `rules`.
    pub fn new(
        rules: &[Arc<Rule>],
        client: &Rc<ClientIdentity>,
        context: &Rc<RequestContext>,
        upstream_index: usize,
    ) -> MessageLimits {
        let generation = &context.generation;
        let counts_messages = |rule: &&Arc<Rule>| rule.count == CountMode::CostMessages;
        let rules: Box<[Arc<Rule>]> = rules.iter().filter(counts_messages).cloned().collect();
        let prepared_decision = generation.admission.prepare(&AdmissionRequest {
            rules: &rules,
            client,
            identifier: &generation.identifier,
            now: generation.clock.now(),
            pressure: None,
            reserved_units: &[],
        });
        MessageLimits {
            rules,
            client: client.clone(),
            context: context.clone(),
            upstream_index,
            prepared_decision,
        }
    }

    /// Takes a unit of each limit, or of shadow limits alone if a limit refuses. Returns the delay as
    /// [`MessageLimits::record_message`] does. `Err` has a future that decides, where a shared store must.
    fn decide_message(&self) -> Result<Option<Nanos>, PendingDecision> {
        let generation = &self.context.generation;
        let pressure = generation.pools[self.upstream_index].servers().pressure();
        let request = AdmissionRequest {
            rules: &self.rules,
            client: &self.client,
            identifier: &generation.identifier,
            now: generation.clock.now(),
            pressure: pressure.map(|pressure| &**pressure),
            reserved_units: &[],
        };
        let mut outcome = AdmissionOutcome::default();
        let pending_decision =
            generation
                .admission
                .decide(&request, Some(&self.prepared_decision), &mut outcome);
        match pending_decision {
            None => Ok(self.record_message(&outcome.verdict)),
            Some(pending_decision) => Err(pending_decision),
        }
    }

    /// Records the verdict on a message. Returns how long the limits delay the message; `None` if they refuse it.
    fn record_message(&self, verdict: &Verdict) -> Option<Nanos> {
        let now = self.context.generation.clock.now();
        match verdict.is_admitted {
            // The log line and the samples describe the handshake until a message is refused.
            true => {
                count_findings(&self.context, verdict, &self.rules, &self.client);
            }
            false => record_verdict(&self.context, verdict, &self.rules, &self.client, now),
        }
        verdict.is_admitted.then_some(verdict.delay)
    }

    /// Whether all limits are shadow limits, which refuse nothing.
    fn are_shadows(&self) -> bool {
        self.rules.iter().all(|rule| rule.shadow)
    }
}

/// Lets the client's frames pass, up to the first message that a limit refuses.
pub struct MessageGate {
    limits: Box<MessageLimits>,
    /// Why the gateway closes the WebSocket, which the relay of the response reads; unset until then.
    shared_close: SharedClose,
    /// Bytes that have come and have not passed.
    input: Bytes,
    /// Bytes of the current frame's payload that are still to pass.
    remaining_payload_bytes: u64,
    /// Whether a further frame of the last message may follow.
    is_message_open: bool,
    /// The decision about the message whose header is at the beginning of `input`.
    pending_decision: Option<PendingDecision>,
    /// The rest of the delay of that message, if a leaky bucket holds it back.
    pending_delay: Option<Pin<Box<Sleep>>>,
}

impl MessageGate {
    /// A gate before any frame has come.
    pub fn new(limits: Box<MessageLimits>, shared_close: SharedClose) -> MessageGate {
        MessageGate {
            limits,
            shared_close,
            input: Bytes::new(),
            remaining_payload_bytes: 0,
            is_message_open: false,
            pending_decision: None,
            pending_delay: None,
        }
    }

    /// Adds bytes that have come to the header whose beginning is held back.
    fn add_input(&mut self, data: Bytes) {
        if self.input.is_empty() {
            self.input = data;
            return;
        }
        let mut joined = BytesMut::with_capacity(self.input.len() + data.len());
        joined.extend_from_slice(&self.input);
        joined.extend_from_slice(&data);
        self.input = joined.freeze();
    }

    /// Takes the bytes that may pass from the input. Stops at a message that is delayed or refused, or whose decision
    /// waits for a store.
    fn pass_frames(&mut self, cx: &mut Context<'_>) -> Bytes {
        let mut passed_bytes = 0;
        loop {
            let available_bytes = (self.input.len() - passed_bytes) as u64;
            let payload_bytes = self.remaining_payload_bytes.min(available_bytes);
            self.remaining_payload_bytes -= payload_bytes;
            // The sum is at most the length of the input.
            passed_bytes += payload_bytes as usize;
            if passed_bytes == self.input.len() {
                break;
            }
            let header = match parse_header(&self.input[passed_bytes..]) {
                Ok(None) => break,
                Ok(Some(header)) if header.is_masked => header,
                // No further frame can be counted, so all further bytes pass.
                Ok(Some(_)) | Err(_) if self.limits.are_shadows() => {
                    self.remaining_payload_bytes = u64::MAX;
                    continue;
                }
                Ok(Some(_)) | Err(_) => {
                    self.close_early(EarlyClose::InvalidFrame);
                    break;
                }
            };
            if self.begins_message(&header) {
                match self.poll_admitted(cx) {
                    Poll::Ready(true) => {}
                    Poll::Ready(false) => {
                        self.close_early(EarlyClose::Refused);
                        break;
                    }
                    Poll::Pending => break,
                }
            }
            if !is_control_frame(&header) {
                self.is_message_open = !header.is_final;
            }
            self.remaining_payload_bytes = header.payload_bytes;
            passed_bytes += header.header_bytes;
        }
        self.input.split_to(passed_bytes)
    }

    /// Whether a server could take the frame for the first of a message. Opcodes without a meaning count as messages.
    fn begins_message(&self, header: &FrameHeader) -> bool {
        let is_continuation = header.opcode == CONTINUATION && self.is_message_open;
        !is_control_frame(header) && !is_continuation
    }

    /// Ready with whether the limits admit the message whose header comes next, after its delay.
    fn poll_admitted(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.pending_delay.is_none() {
            match ready!(self.poll_decision(cx)) {
                None => return Poll::Ready(false),
                Some(Nanos::ZERO) => return Poll::Ready(true),
                Some(delay) => {
                    self.pending_delay = Some(Box::pin(tokio::time::sleep(delay.into())));
                }
            }
        }
        if let Some(delay) = &mut self.pending_delay {
            ready!(delay.as_mut().poll(cx));
            self.pending_delay = None;
        }
        Poll::Ready(true)
    }

    /// Ready with the delay of the message whose header comes next; with `None` if a limit refuses it.
    fn poll_decision(&mut self, cx: &mut Context<'_>) -> Poll<Option<Nanos>> {
        let mut decision = match self.pending_decision.take() {
            Some(decision) => decision,
            None => match self.limits.decide_message() {
                Ok(delay) => return Poll::Ready(delay),
                Err(decision) => decision,
            },
        };
        match decision.as_mut().poll(cx) {
            // A limit on messages reserves nothing, so the ticket is empty.
            Poll::Ready((verdict, _)) => Poll::Ready(self.limits.record_message(&verdict)),
            Poll::Pending => {
                self.pending_decision = Some(decision);
                Poll::Pending
            }
        }
    }

    fn close_early(&self, early_close: EarlyClose) {
        let context = &self.limits.context;
        self.shared_close.set(Some(early_close));
        context.reason.set(Some(early_close.log_reason()));
    }
}

/// Whether a frame is about the connection and carries no message: RFC 6455 section 5.2. Close is the first such opcode.
fn is_control_frame(header: &FrameHeader) -> bool {
    header.opcode >= CLOSE
}

impl TunnelGate for MessageGate {
    fn is_empty(&self) -> bool {
        self.input.is_empty() || self.shared_close.get().is_some()
    }

    fn poll_passed(
        &mut self,
        cx: &mut Context<'_>,
        poll_source: &mut dyn FnMut(&mut Context<'_>) -> PolledFrame,
    ) -> PolledFrame {
        loop {
            if self.shared_close.get().is_some() {
                return Poll::Ready(None);
            }
            let passed = self.pass_frames(cx);
            if !passed.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passed))));
            }
            if self.pending_decision.is_some() || self.pending_delay.is_some() {
                return Poll::Pending;
            }
            if self.shared_close.get().is_some() {
                continue;
            }
            match ready!(poll_source(cx)).transpose()?.map(Frame::into_data) {
                Some(Ok(data)) => self.add_input(data),
                // A tunnel has no trailers.
                Some(Err(_)) => {}
                None => return Poll::Ready(None),
            }
        }
    }
}
