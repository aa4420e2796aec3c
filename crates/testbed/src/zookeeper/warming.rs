//! A Java machine that has just started takes a hundred times as long for a request as it does later. Tests with short leases
//! shall not meet it like that.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use crate::PATIENCE;

/// How often each request is made.
const ROUNDS: i32 = 150;

/// Makes nodes, lists them and reads them, in a session that it closes again.
pub(super) fn warm_up(port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let hello = [&[0; 4][..], &[0; 8], &30_000_i32.to_be_bytes(), &[0; 8], &buffer(&[0; 16]), &[0]].concat();
    ask(&mut stream, &hello)?;
    let everybody = [&1_i32.to_be_bytes()[..], &31_i32.to_be_bytes(), &buffer(b"world"), &buffer(b"anyone")].concat();
    for round in 1..=ROUNDS {
        // Ephemeral and sequential, by `create2`.
        let create = [&buffer(b"/warming-")[..], &buffer(b"data"), &everybody, &3_i32.to_be_bytes()].concat();
        ask(&mut stream, &request(round * 3, 15, &create))?;
        ask(&mut stream, &request(round * 3 + 1, 9, &buffer(b"/")))?;
        ask(&mut stream, &request(round * 3 + 2, 8, &[&buffer(b"/")[..], &[0]].concat()))?;
    }
    ask(&mut stream, &request(ROUNDS * 3 + 3, -11, &[]))?;
    Ok(())
}

fn request(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    [&xid.to_be_bytes()[..], &op.to_be_bytes(), body].concat()
}

/// With its length in front.
fn buffer(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// Sends a request and reads an answer, whatever it is.
fn ask(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<()> {
    stream.write_all(&buffer(request))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u64::from(u32::from_be_bytes(length));
    std::io::copy(&mut stream.take(length), &mut std::io::sink())?;
    Ok(())
}
