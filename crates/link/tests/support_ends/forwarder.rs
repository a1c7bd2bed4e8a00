// SPDX-License-Identifier: MIT OR Apache-2.0
//! A forwarder of TCP connections between the two ends of a link. The test can cut the connections
//! at any moment.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub struct Forwarder {
    pub address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    streams: Vec<TcpStream>,
    connections: u64,
    is_over: bool,
}

impl Forwarder {
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let kept = Arc::clone(&shared);
        thread::spawn(move || {
            // On an error, such as a lack of descriptors, forwarding stops. The test then fails,
            // because client and server get no connection.
            for near in listener.incoming().map_while(Result::ok) {
                let mut shared = kept.lock().unwrap();
                if shared.is_over {
                    return;
                }
                let Ok(far) = TcpStream::connect(server) else { continue };
                for stream in [&near, &far] {
                    stream.set_nodelay(true).unwrap();
                    shared.streams.push(stream.try_clone().unwrap());
                }
                shared.connections += 1;
                for (from, to) in [(&near, &far), (&far, &near)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || copy(from, to));
                }
            }
        });
        Self { address, shared }
    }

    pub fn connections(&self) -> u64 {
        self.shared.lock().unwrap().connections
    }

    /// Cuts all forwarded connections, so that bytes under way are lost.
    pub fn cut(&self) {
        for stream in self.shared.lock().unwrap().streams.drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.lock().unwrap().is_over = true;
        self.cut();
        // This connection wakes the listener thread, which blocks in `accept` and then sees that it
        // must end.
        let _ = TcpStream::connect(self.address);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
