//! The part of ZMTP 3.1, the protocol of `ZeroMQ`, that a server without authentication needs:
//! the greeting, the handshake of the mechanism NULL, and frames.

use std::io::{Error, ErrorKind, Result};

use tokio::net::TcpStream;

/// The longest frame that a peer may send: a topic, or a number.
const MAX_FRAME: u64 = 4096;
/// The most frames of a message of a peer.
const MAX_FRAMES: usize = 16;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A connection after the handshake.
pub(super) struct Peer {
    stream: TcpStream,
    /// Bytes that were received and not parsed.
    received: Vec<u8>,
}

/// A frame, or a command between messages.
struct Frame {
    flags: u8,
    body: Vec<u8>,
}

/// A message, or a command.
#[derive(Debug, PartialEq)]
pub(super) enum Received {
    Message(Vec<Vec<u8>>),
    /// The name of the command, and its data.
    Command(Vec<u8>, Vec<u8>),
}

impl Peer {
    /// Greets a peer and tells it the type of this socket. Its own type must be one of `peers`.
    pub(super) async fn accept(stream: TcpStream, socket: &str, peers: &[&str]) -> Result<Self> {
        let mut peer = Self { stream, received: Vec::new() };
        peer.write(&greeting()).await?;
        let theirs = peer.take(64).await?;
        let is_version_3 = theirs[0] == 0xff && theirs[9] & 1 == 1 && theirs[10] >= 3;
        if !is_version_3 || &theirs[12..32] != mechanism().as_slice() {
            return Err(invalid("expected ZMTP 3 with the mechanism NULL"));
        }
        let mut ready = command("READY");
        ready.extend(property("Socket-Type", socket.as_bytes()));
        peer.write_frame(COMMAND, &ready).await?;
        match peer.receive().await? {
            Received::Command(name, data) if name == b"READY" => {
                let theirs = property_of(&data, b"socket-type");
                if theirs.is_some_and(|theirs| peers.iter().any(|peer| peer.as_bytes() == theirs)) {
                    return Ok(peer);
                }
                Err(invalid("sockets of this type do not fit"))
            }
            _ => Err(invalid("expected READY")),
        }
    }

    /// Receives a message or a command. If the future is dropped, nothing is lost.
    pub(super) async fn receive(&mut self) -> Result<Received> {
        loop {
            if let Some((received, length)) = parse(&self.received)? {
                self.received.drain(..length);
                return Ok(received);
            }
            self.fill().await?;
        }
    }

    /// Sends a message.
    pub(super) async fn send(&mut self, frames: &[&[u8]]) -> Result<()> {
        for (index, frame) in frames.iter().enumerate() {
            let more = if index + 1 < frames.len() { MORE } else { 0 };
            self.write_frame(more, frame).await?;
        }
        Ok(())
    }

    /// Answers a ping with its context.
    pub(super) async fn pong(&mut self, data: &[u8]) -> Result<()> {
        let context = data.get(2..).unwrap_or_default();
        let pong = [command("PONG"), context.to_vec()].concat();
        self.write_frame(COMMAND, &pong).await
    }

    async fn write_frame(&mut self, flags: u8, body: &[u8]) -> Result<()> {
        let mut bytes = Vec::with_capacity(body.len() + 9);
        if let Ok(length) = u8::try_from(body.len()) {
            bytes.extend([flags, length]);
        } else {
            bytes.push(flags | LONG);
            bytes.extend((body.len() as u64).to_be_bytes());
        }
        bytes.extend(body);
        self.write(&bytes).await
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.received.len() < length {
            self.fill().await?;
        }
        Ok(self.received.drain(..length).collect())
    }

    /// Receives some bytes. If the future is dropped, nothing is lost.
    async fn fill(&mut self) -> Result<()> {
        let mut bytes = [0; 1024];
        loop {
            self.stream.readable().await?;
            match self.stream.try_read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.received.extend(&bytes[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(bytes) {
                Ok(length) => bytes = &bytes[length..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn invalid(reason: &'static str) -> Error {
    Error::new(ErrorKind::InvalidData, reason)
}

/// The name of the mechanism without authentication, padded.
fn mechanism() -> [u8; 20] {
    let mut name = [0; 20];
    name[..4].copy_from_slice(b"NULL");
    name
}

/// The signature, version 3.1, and the mechanism.
fn greeting() -> [u8; 64] {
    let mut greeting = [0; 64];
    (greeting[0], greeting[9], greeting[10], greeting[11]) = (0xff, 0x7f, 3, 1);
    greeting[12..32].copy_from_slice(&mechanism());
    greeting
}

/// The beginning of a command.
fn command(name: &str) -> Vec<u8> {
    let mut bytes = vec![name.len() as u8];
    bytes.extend(name.as_bytes());
    bytes
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let mut bytes = command(name);
    bytes.extend((value.len() as u32).to_be_bytes());
    bytes.extend(value);
    bytes
}

/// The value of a property, whose name has any case.
fn property_of<'a>(mut data: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    loop {
        let (&length, rest) = data.split_first()?;
        let (found, rest) = rest.split_at_checked(length.into())?;
        let (length, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        data = rest;
    }
}

/// The first frame in `bytes` and its length; `None` if it is not whole yet.
fn parse_frame(bytes: &[u8]) -> Result<Option<(Frame, usize)>> {
    let Some((&flags, rest)) = bytes.split_first() else { return Ok(None) };
    let header = if flags & LONG == 0 {
        rest.first().map(|&length| (u64::from(length), 2))
    } else {
        rest.first_chunk().map(|length| (u64::from_be_bytes(*length), 9))
    };
    let Some((length, start)) = header else { return Ok(None) };
    if length > MAX_FRAME {
        return Err(invalid("a frame is too long"));
    }
    let end = start + length as usize;
    let body = bytes.get(start..end).map(<[u8]>::to_vec);
    Ok(body.map(|body| (Frame { flags, body }, end)))
}

/// The first message or command in `bytes` and its length; `None` if it is not whole yet.
fn parse(bytes: &[u8]) -> Result<Option<(Received, usize)>> {
    let (mut frames, mut at) = (Vec::new(), 0);
    while let Some((Frame { flags, body }, length)) = parse_frame(&bytes[at..])? {
        at += length;
        if flags & COMMAND != 0 && frames.is_empty() {
            let name = body.split_first().and_then(|(&n, rest)| rest.split_at_checked(n.into()));
            let (name, data) = name.ok_or_else(|| invalid("a command has no name"))?;
            return Ok(Some((Received::Command(name.to_vec(), data.to_vec()), at)));
        }
        frames.push(body);
        if flags & MORE == 0 {
            return Ok(Some((Received::Message(frames), at)));
        }
        if frames.len() > MAX_FRAMES {
            return Err(invalid("a message has too many frames"));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_and_commands_are_found_when_they_are_whole() {
        let bytes = [MORE, 1, b'a', 0, 2, b'b', b'c', COMMAND, 6, 4, b'P', b'I', b'N', b'G', 9];
        for end in 0..7 {
            assert_eq!(parse(&bytes[..end]).unwrap(), None, "{end}");
        }
        let message = Received::Message(vec![b"a".to_vec(), b"bc".to_vec()]);
        assert_eq!(parse(&bytes).unwrap(), Some((message, 7)));
        let ping = Received::Command(b"PING".to_vec(), vec![9]);
        assert_eq!(parse(&bytes[7..]).unwrap(), Some((ping, 8)));
        let long = [&[LONG][..], &3_u64.to_be_bytes(), b"abc"].concat();
        assert_eq!(parse(&long).unwrap(), Some((Received::Message(vec![b"abc".to_vec()]), 12)));
    }

    #[test]
    fn what_a_peer_may_not_send_is_refused() {
        let long = [&[LONG][..], &u64::MAX.to_be_bytes()].concat();
        assert!(parse(&long).is_err());
        assert!(parse(&[COMMAND, 2, 9, b'x']).is_err());
        assert!(parse(&[MORE, 0].repeat(MAX_FRAMES + 1)).is_err());
    }

    #[test]
    fn properties_are_found_by_names_of_any_case() {
        let data = [property("Identity", b""), property("Socket-Type", b"SUB")].concat();
        assert_eq!(property_of(&data, b"socket-type"), Some(&b"SUB"[..]));
        assert_eq!(property_of(&data, b"other"), None);
        assert_eq!(property_of(&data[..data.len() - 1], b"socket-type"), None);
    }
}
