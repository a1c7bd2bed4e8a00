// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of a run: it drives the traffic that the options describe, and checks every byte.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use super::options::{ModeName, Options};
use super::pattern::Pattern;
use super::plan::{Mode, Plan};
use super::report::SharedReport;
use super::serve::{PIECE_BYTES, make_request, receive_request};
use super::stream::{Client, Conversation, Receiver, Sender};

/// Drives the traffic of `options` from the pool `client`, whose sessions are already connected;
/// returns the exit code.
pub async fn run<C: Client>(options: &Options, peer: &str, client: C) -> u8 {
    println!("connected");
    let (end, ended) = watch::channel(!options.until_stdin_ends);
    let leases = Arc::new(Leases::new(options.streams));
    if options.until_stdin_ends {
        let leases = Arc::clone(&leases);
        tokio::spawn(async move {
            let mut commands = BufReader::new(tokio::io::stdin()).lines();
            while let Ok(Some(line)) = commands.next_line().await {
                if line.trim() == "renew" {
                    leases.renew();
                }
            }
            end.send_replace(true);
        });
    }
    let report = SharedReport::new("client", peer);
    let client = Arc::new(client);
    let driver = Driver { options: options.clone(), report: report.clone(), client, ended, leases };
    if let Err(error) = driver.drive().await {
        report.fail(&error);
    }
    if driver.options.small_region && driver.options.mode == ModeName::Echo {
        // `Flush` of shmipc-go over the socket waits for the end of the write and for the end of
        // the session, and may return either (`waitForSendErr` in session.go of 0.2.0). So the
        // session lives on until the server's last `Flush` has returned.
        tokio::time::sleep(FLUSH_TIME).await;
    }
    let metrics = match Arc::into_inner(driver.client) {
        Some(client) => client.close().await,
        None => Vec::new(),
    };
    super::remove_leftovers(&options.prefix);
    report.print(metrics)
}

struct Driver<C> {
    options: Options,
    report: SharedReport,
    client: Arc<C>,
    ended: watch::Receiver<bool>,
    leases: Arc<Leases>,
}

impl<C> Clone for Driver<C> {
    fn clone(&self) -> Self {
        let (options, report) = (self.options.clone(), self.report.clone());
        let (client, ended) = (self.client.clone(), self.ended.clone());
        Self { options, report, client, ended, leases: Arc::clone(&self.leases) }
    }
}

impl<C: Client> Driver<C> {
    async fn drive(&self) -> Result<()> {
        // A library sends a message over the socket if shared memory has no room for it. From then
        // on it may open no new stream on that session, so all streams are opened before the first
        // message.
        let mut first = Vec::new();
        for index in 0..=self.options.streams {
            first.push(self.client.open().await.with_context(|| format!("opening {index}"))?);
        }
        let teller = first.pop();
        let mut lanes = JoinSet::new();
        for (index, stream) in first.into_iter().enumerate() {
            self.report.with(|report| report.streams += 1);
            let driver = self.clone();
            lanes.spawn(async move {
                let seed = driver.options.seed + ((index as u64) << 32);
                let done = driver.lane(index, stream, seed).await;
                driver.leases.end(index);
                if let Err(error) = done.with_context(|| format!("stream {index}")) {
                    driver.report.fail(&error);
                }
            });
        }
        while let Some(lane) = lanes.join_next().await {
            lane.context("a stream panicked")?;
        }
        let Some(teller) = teller else { return Ok(()) };
        let (mut sender, mut receiver) = teller.split();
        if self.options.mode == ModeName::Upload {
            self.await_uploads(&mut sender, &mut receiver).await?;
        }
        C::Stream::join(sender, receiver).close().await
    }

    /// Runs one of the concurrent users of the client's stream pool: it takes a stream, sends
    /// requests, puts the stream back, and takes the next.
    async fn lane(&self, index: usize, stream: C::Stream, seed: u64) -> Result<()> {
        let options = &self.options;
        let sizes = options.sizes.clone();
        let mut plan = Plan { mode: Mode::Echo, seed, requests: options.count, sizes };
        match options.mode {
            ModeName::Echo => {}
            ModeName::Upload => {
                plan.mode = Mode::Upload;
                return self.upload(stream, &plan).await;
            }
            ModeName::Download => {
                plan.mode = Mode::Download;
                return self.download(stream, &plan).await;
            }
        }
        let mut stream = Some(stream);
        for round in 0.. {
            let mut done = 0;
            while done < options.count {
                let open = match stream.take() {
                    Some(stream) => stream,
                    None => {
                        let request = self.leases.requested();
                        let stream = self.client.open().await.context("getting a stream")?;
                        self.leases.begin(index, request);
                        stream
                    }
                };
                plan.requests = options.lease().min(options.count - done);
                plan.seed = seed + round * options.count + done;
                let open = self.echo(open, &plan).await?;
                done += plan.requests;
                if options.put_back {
                    self.client.put_back(open).await;
                } else {
                    stream = Some(open);
                }
            }
            if *self.ended.borrow() {
                break;
            }
        }
        match stream {
            Some(stream) => stream.close().await,
            None => Ok(()),
        }
    }

    /// Sends a plan and the requests that it announces, and checks the server's answers. At most
    /// `--pipeline` requests are unanswered at a time.
    async fn echo(&self, stream: C::Stream, plan: &Plan) -> Result<C::Stream> {
        let (mut sender, mut receiver) = stream.split();
        sender.send(&plan.encode()).await.context("sending a plan")?;
        if self.options.pipeline <= 1 {
            let (mut message, mut answer) = (Vec::new(), Vec::new());
            for request in 0..plan.requests {
                make_request(plan, request, &mut message);
                sender.send(&message).await.with_context(|| format!("request {request}"))?;
                let piece = self.piece_bytes(message.len());
                let received = receive_request(&mut receiver, plan, request, piece, &mut answer);
                received.await.context("answer")?;
                self.report.request(message.len());
            }
            return Ok(C::Stream::join(sender, receiver));
        }
        let room = Arc::new(Semaphore::new(self.options.pipeline));
        let ahead = tokio::spawn(send_ahead(sender, plan.clone(), room.clone()));
        let received = self.receive_answers(&mut receiver, plan, &room).await;
        // The sending task takes a permit of the semaphore `room` for each request, and the
        // receiver returns one for each answer. After an error the receiver returns none, and the
        // sending task would wait for ever: closing `room` ends it.
        room.close();
        let sender = ahead.await.context("the sender panicked")??;
        received?;
        Ok(C::Stream::join(sender, receiver))
    }

    async fn receive_answers(
        &self,
        receiver: &mut impl Receiver,
        plan: &Plan,
        room: &Semaphore,
    ) -> Result<()> {
        let mut message = Vec::new();
        if !self.options.ignore_boundaries {
            for request in 0..plan.requests {
                let received = receive_request(receiver, plan, request, PIECE_BYTES, &mut message);
                received.await.context("answer")?;
                self.report.request(message.len());
                room.add_permits(1);
            }
            return Ok(());
        }
        let (mut request, mut in_request) = (0, 0);
        let mut expected = Pattern::new(plan.seed, 0);
        for turn in 0.. {
            message.clear();
            let size_max = ODD_PIECES[turn % ODD_PIECES.len()];
            let count = receiver.receive(size_max, &mut message).await?;
            ensure!(count > 0, "end of stream in answer {request} after {in_request} bytes");
            let mut rest = message.as_slice();
            while !rest.is_empty() {
                let (part, later) = rest.split_at(rest.len().min(plan.size(request) - in_request));
                if let Some(wrong) = expected.check(part) {
                    anyhow::bail!("answer {request}: byte {} is wrong", in_request + wrong);
                }
                (in_request, rest) = (in_request + part.len(), later);
                if in_request == plan.size(request) {
                    self.report.request(in_request);
                    room.add_permits(1);
                    (request, in_request) = (request + 1, 0);
                    expected = Pattern::new(plan.seed, request);
                }
            }
            if request == plan.requests {
                break;
            }
        }
        Ok(())
    }

    fn piece_bytes(&self, size: usize) -> usize {
        if self.options.ignore_boundaries { ODD_PIECES[size % ODD_PIECES.len()] } else { size }
    }

    /// Sends a plan and the requests that it announces, and closes the stream right after the last
    /// one.
    async fn upload(&self, stream: C::Stream, plan: &Plan) -> Result<()> {
        let (mut sender, receiver) = stream.split();
        sender.send(&plan.encode()).await.context("sending a plan")?;
        let mut message = Vec::new();
        for request in 0..plan.requests {
            make_request(plan, request, &mut message);
            sender.send(&message).await.with_context(|| format!("upload {request}"))?;
            self.report.request(message.len());
        }
        C::Stream::join(sender, receiver).close().await
    }

    /// Asks the server for its counts of uploads until each upload has ended, whole or cut short.
    async fn await_uploads(
        &self,
        sender: &mut impl Sender,
        receiver: &mut impl Receiver,
    ) -> Result<()> {
        let ask = Plan { mode: Mode::Report, seed: 0, requests: 0, sizes: vec![1] };
        loop {
            sender.send(&ask.encode()).await.context("asking for the counts")?;
            let mut answer = Vec::new();
            receiver.receive_exact(24, &mut answer).await.context("asking for the counts")?;
            let word = |index: usize| {
                let bytes = answer[8 * index..].first_chunk().copied();
                u64::from_be_bytes(bytes.unwrap_or_default())
            };
            let (whole, cut) = (word(0), word(1));
            if whole + cut >= self.options.streams as u64 {
                self.report.with(|report| {
                    (report.uploads_whole, report.uploads_cut) = (whole, cut);
                });
                ensure!(cut == 0, "{cut} uploads were cut short");
                return Ok(());
            }
            tokio::time::sleep(ASKING_PAUSE).await;
        }
    }

    /// Sends a plan, and receives the requests that it announces, then the end of the stream.
    async fn download(&self, stream: C::Stream, plan: &Plan) -> Result<()> {
        let (mut sender, mut receiver) = stream.split();
        sender.send(&plan.encode()).await.context("sending a plan")?;
        let mut message = Vec::new();
        for request in 0..plan.requests {
            let received = receive_request(&mut receiver, plan, request, PIECE_BYTES, &mut message);
            received.await.context("download")?;
            self.report.request(message.len());
        }
        let surplus = receiver.receive(1, &mut message).await.context("after the last byte")?;
        ensure!(surplus == 0, "there are bytes after the last one");
        C::Stream::join(sender, receiver).close().await
    }
}

/// Notes which concurrent users of the client's stream pool have leased a stream since the harness
/// last sent `renew`.
///
/// Once each has leased one after that request, the program prints "renewed": no stream is in use
/// any more that was leased before.
struct Leases {
    state: Mutex<LeaseState>,
}

struct LeaseState {
    /// Number of `renew` requests that the harness has made so far.
    requested: u64,
    /// Number of the last `renew` request for which "renewed" was printed.
    printed: u64,
    /// For each concurrent user of the stream pool, the number of `renew` requests that had arrived
    /// when it leased its present stream.
    lanes: Vec<u64>,
}

impl Leases {
    fn new(lanes: usize) -> Self {
        Self { state: Mutex::new(LeaseState { requested: 0, printed: 0, lanes: vec![0; lanes] }) }
    }

    fn requested(&self) -> u64 {
        self.lock().requested
    }

    fn renew(&self) {
        let mut state = self.lock();
        state.requested += 1;
        state.print_if_renewed();
    }

    /// Notes that a concurrent user of the stream pool leased a stream after `request` requests of
    /// `renew`.
    fn begin(&self, lane: usize, request: u64) {
        let mut state = self.lock();
        state.lanes[lane] = request;
        state.print_if_renewed();
    }

    /// Notes that a concurrent user of the stream pool has ended, so that the program prints
    /// "renewed" without it.
    fn end(&self, lane: usize) {
        self.begin(lane, u64::MAX);
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseState {
    fn print_if_renewed(&mut self) {
        let is_renewed = self.lanes.iter().all(|lane| *lane >= self.requested);
        if is_renewed && self.printed < self.requested {
            self.printed = self.requested;
            println!("renewed");
        }
    }
}

async fn send_ahead<S: Sender>(mut sender: S, plan: Plan, room: Arc<Semaphore>) -> Result<S> {
    let mut message = Vec::new();
    for request in 0..plan.requests {
        let Ok(permit) = room.acquire().await else { break };
        permit.forget();
        make_request(&plan, request, &mut message);
        sender.send(&message).await.with_context(|| format!("request {request}, sent ahead"))?;
    }
    Ok(sender)
}

/// Time in which a `Flush` returns whose bytes have arrived, also on a busy machine.
const FLUSH_TIME: Duration = Duration::from_millis(300);

/// Sizes in bytes of the pieces in which answers are read. They are unrelated to the sizes of
/// requests and slices, so pieces end at any place within both.
const ODD_PIECES: [usize; 8] = [1, 7, 4093, 10007, 100_003, 3, 65537, 333];
const ASKING_PAUSE: Duration = Duration::from_millis(10);
