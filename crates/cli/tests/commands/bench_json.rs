// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that each scenario of `partywall bench` prints JSON lines with all keys.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_partywall");
    Command::new(program).arg("bench").args(arguments).output().expect("the program starts")
}

fn lines(arguments: &[&str]) -> Vec<Value> {
    let short = ["--json", "--duration", "5ms", "--rounds", "1"];
    let output = bench(&[arguments, &short].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn assert_complete(line: &Value) {
    for key in KEYS {
        assert!(line.get(key).is_some(), "{key} is missing in {line}");
    }
    assert_eq!(
        line["touched"] == Value::Bool(true),
        line["transport"] != "baseline-eventfd",
        "{line}"
    );
}

#[test]
fn ping() {
    let every = "shm,uds,tcp,pipe,baseline-spin,baseline-eventfd";
    let lines = lines(&["ping", "--size", "64,4k", "--transport", every, "--wait", "spin,park"]);
    assert_eq!(
        lines.len(),
        13,
        "shared memory with both waits, the baseline of eventfds without a size"
    );
    for line in &lines {
        assert_complete(line);
        let at = |key: &str| line[key].as_u64().expect("a number");
        assert!(at("ops") > 0 && at("p50_ns") > 0);
        assert!(at("p50_ns") <= at("p99_ns") && at("p99_ns") <= at("max_ns"), "{line}");
    }
}

#[test]
fn throughput() {
    let lines = lines(&[
        "throughput",
        "--size",
        "64",
        "--transport",
        "shm,uds,tcp,pipe,baseline-spin",
        "--wait",
        "park",
    ]);
    assert_eq!(lines.len(), 5, "four streams, and the baseline's round trip to compare with");
    lines.iter().for_each(assert_complete);
}

#[test]
fn link_files_are_removed_after_the_run() {
    let program = env!("CARGO_BIN_EXE_partywall");
    let arguments = ["bench", "link", "--size", "48", "--transport", "link-shm", "--wait", "park"];
    let short = ["--json", "--duration", "5ms", "--rounds", "1"];
    // Input: a `bench` that kills its child process while the last link is open, so the child
    // cannot remove that link's files. Expected result: `bench` removes them.
    let temporary = tempfile::tempdir().expect("a directory");
    let mut bench = Command::new(program);
    bench.args(arguments).args(short).env("TMPDIR", temporary.path()).stdout(Stdio::null());
    let mut bench = bench.spawn().expect("the program starts");
    let mut children = Vec::new();
    let status = loop {
        children.extend(children_of(bench.id()));
        if let Some(status) = bench.try_wait().expect("it can be waited for") {
            break status;
        }
        std::thread::yield_now();
    };
    assert!(status.success() && !children.is_empty());
    let left = fs::read_dir(temporary.path()).expect("it is there").count();
    assert_eq!(left, 0, "in the directory for temporary files");
    children.push(bench.id());
    for name in fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.file_name()) {
        let name = name.to_string_lossy().into_owned();
        let is_ours = |pid: &u32| name.split('-').any(|part| part == pid.to_string());
        assert!(!children.iter().any(is_ours), "{name}");
    }
}

/// The process ids of the children that the first thread of process `pid` started, as `/proc` lists
/// them.
fn children_of(pid: u32) -> Vec<u32> {
    let listed = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    listed.unwrap_or_default().split_whitespace().flat_map(str::parse).collect()
}

#[test]
fn link() {
    let lines = lines(&["link", "--size", "48,64k", "--wait", "park"]);
    let sizes_of = |scenario: &str, transport: &str| {
        let is_it = |line: &&Value| line["scenario"] == scenario && line["transport"] == transport;
        lines.iter().filter(is_it).count()
    };
    for scenario in ["ping", "throughput", "duplex"] {
        for transport in ["shm", "link-shm", "link-tcp", "link-uds", "tcp", "uds"] {
            // Expected result: no line for `duplex` with large messages over plain sockets, because
            // both ends would block in send, and so `bench` skips this combination.
            let is_stuck = scenario == "duplex" && !transport.contains('-') && transport != "shm";
            assert_eq!(
                sizes_of(scenario, transport),
                if is_stuck { 1 } else { 2 },
                "{scenario} {transport}"
            );
        }
    }
    for line in &lines {
        assert_complete(line);
        assert!(line["ops"].as_u64() > Some(0) && line["ops_per_s"].as_f64() > Some(0.0), "{line}");
        // Expected result: a latency in every `ping` line, and none in a `duplex` line. Other
        // scenarios may have no latency in a run this short, because perhaps no message carried its
        // send time.
        let has_latency = |scenario: &str| line["scenario"] == scenario && line["p50_ns"].is_u64();
        assert!(has_latency("ping") || line["scenario"] != "ping", "{line}");
        assert!(!has_latency("duplex"), "{line}");
    }
}

#[test]
fn rate() {
    let lines = lines(&["rate", "--rate", "1k", "--transport", "shm,uds,pipe", "--wait", "park"]);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_complete(line);
        assert_eq!(line["rate"], 1000);
        assert!(line["p99_ns"].is_null(), "too few samples for a p99");
        assert!(line["receiver_cores"].is_number());
    }
}

#[test]
fn oversubscribe() {
    let lines = lines(&[
        "oversubscribe",
        "--pairs",
        "3",
        "--busy",
        "1",
        "--transport",
        "shm,uds,tcp",
        "--wait",
        "adaptive",
    ]);
    assert_eq!(lines.len(), 3);
    for line in &lines {
        assert_complete(line);
        assert_eq!(line["streams"], 3);
    }
}

#[test]
fn parallel() {
    let few = ["parallel", "--streams", "7", "--size", "64,64k", "--transport", "shm,uds,tcp"];
    for (processes, more) in [(2, &[][..]), (1, &["--one-process"])] {
        let lines = lines(&[&few, more].concat());
        assert_eq!(lines.len(), 6);
        for line in &lines {
            assert_complete(line);
            assert_eq!((&line["streams"], &line["unread"]), (&7.into(), &0.into()));
            assert_eq!(line["processes"], processes);
            assert!(line["ns_per_op"]["median"].as_f64().expect("a number") > 0.0);
            assert_eq!(line["memory_bytes_max"].is_u64(), line["transport"] == "shm", "{line}");
        }
        let large = lines.iter().find(|line| line["size"] == 65536).expect("asked for");
        assert!(large["p50_ns"].as_u64() > Some(0), "each large operation is timed: {large}");
    }
}

/// Rule: gRPC and HTTP answer every call over both transports, shared memory and Unix sockets, and
/// payloads of any size arrive intact.
#[cfg(feature = "frameworks")]
#[test]
fn frameworks() {
    for name in ["grpc", "http"] {
        let lines = lines(&[name, "--size", "8,64k,1m", "--in-flight", "1,7"]);
        assert_eq!(lines.len(), 18, "three sizes and two transports: twice calls, once a stream");
        for line in &lines {
            assert_complete(line);
            let is_stream = line["scenario"] == format!("{name}-stream");
            assert!(is_stream || line["scenario"] == name, "{line}");
            assert_eq!(line["p50_ns"].as_u64() > Some(0), !is_stream, "{line}");
            assert!(line["ops"].as_u64() >= line["streams"].as_u64(), "{line}");
            assert!(["shm", "uds"].contains(&line["transport"].as_str().expect("a name")));
        }
        let in_flight = |count: u64| lines.iter().filter(|line| line["streams"] == count).count();
        assert_eq!((in_flight(1), in_flight(7)), (12, 6));
    }
}

#[test]
fn unread_stream_is_bounded_and_does_not_stop_the_others() {
    for size in ["64", "4k", "1m"] {
        let lines = lines(&["parallel", "--streams", "5", "--unread", "2", "--size", size]);
        assert_eq!(lines.len(), 6, "three transports, each without and with");
        for pair in lines.chunks(2) {
            let [without, with] = pair else { panic!("an odd one") };
            assert_complete(with);
            assert_eq!((&without["streams"], &with["streams"]), (&3.into(), &3.into()));
            assert_eq!((&without["unread"], &with["unread"]), (&0.into(), &2.into()));
            assert!(without.get("rate_kept").is_none() && with["rate_kept"]["median"].is_f64());
        }
        let at = |key: &str| lines[1][key].as_u64().expect(key);
        assert_eq!(lines[1]["transport"], "shm");
        assert!(at("unread_messages") >= 2, "each sender sent at least one");
        assert!(at("unread_bytes") <= at("unread_bytes_max"), "{}", lines[1]);
        assert!(at("memory_bytes") <= at("memory_bytes_max"), "{}", lines[1]);
    }
}

#[test]
fn untouched_streams_are_marked() {
    let few = ["parallel", "--streams", "3", "--size", "1m", "--touch", "none"];
    assert!(lines(&few).iter().all(|line| line["touched"] == Value::Bool(false)));
}

#[test]
fn connect() {
    let lines = lines(&["connect", "--transport", "shm,uds,tcp"]);
    assert_eq!(lines.len(), 6);
    lines.iter().for_each(assert_complete);
    assert!(lines[0]["descriptors_per_session"].as_f64().expect("a number") >= 1.0);
    for line in &lines[3..] {
        assert_eq!(line["scenario"], "idle");
        assert_eq!(line["idle_wakeups"], 0, "an idle receiver sleeps: {line}");
    }
}

#[test]
fn connect_reports_its_messages_and_the_transport_of_the_last() {
    for fresh in [&[][..], &["--fresh"]] {
        let few = ["connect", "--messages", "1,300", "--transport", "shm,uds,tcp"];
        let lines = lines(&[&few, fresh].concat());
        assert_eq!(lines.len(), 6, "three transports, each with two numbers of messages");
        for line in &lines {
            assert_complete(line);
            assert!(line["ops"].as_u64() > Some(0) && line["p50_ns"].as_u64() > Some(0), "{line}");
            assert_eq!(line["fresh"], Value::Bool(!fresh.is_empty()));
            let carrier = if line["transport"] == "shm" { "shm" } else { "socket" };
            assert_eq!(line["last_message_over"], carrier, "{line}");
        }
        let counts = lines.iter().map(|line| line["messages"].as_u64());
        assert_eq!(counts.filter(|count| *count == Some(300)).count(), 3);
    }
}

#[test]
fn table_of_connect_names_the_transport_of_the_last_message() {
    let short = ["--duration", "5ms", "--rounds", "1", "--transport", "shm,uds"];
    let output = bench(&[&["connect", "--fresh"][..], &short].concat());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let ends = |transport: &str, carrier: &str| {
        let line = text.lines().find(|line| line.starts_with(transport)).expect(transport);
        assert!(line.ends_with(carrier) && line.contains("fresh"), "{line}");
    };
    assert!(output.status.success() && text.contains("÷ socket    over\n"), "{text}");
    ends("connect shm", " shm");
    ends("connect uds", " socket");
}

#[test]
fn untouched_payloads_are_marked() {
    let lines = lines(&["ping", "--size", "64", "--transport", "uds", "--touch", "none"]);
    assert_eq!(lines[0]["touched"], Value::Bool(false));
}

#[test]
fn report_has_table_plots_and_json_and_no_external_file() {
    let directory = std::env::temp_dir().join(format!("partywall-report-{}", std::process::id()));
    let out = directory.to_str().expect("a plain name");
    let short = ["--duration", "5ms", "--rounds", "1", "--transport", "uds,baseline-spin"];
    let output = bench(&[&["ping", "--size", "64,4k", "--out", out][..], &short].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).expect(name);
    let results: Value = serde_json::from_str(&read("results.json")).expect("JSON");
    assert_eq!(results["results"].as_array().map(Vec::len), Some(4));
    assert!(results["machine"]["kernel"].is_string());
    let page = read("report.html");
    assert!(page.contains("<svg") && page.contains("÷ socket") && !page.contains(" src="));
    assert!(read("ping-by-size.svg").starts_with("<svg"));
    std::fs::remove_dir_all(&directory).expect("made by this test");
}

#[test]
fn wrong_arguments_are_rejected_before_any_measurement() {
    for arguments in [
        &["ping", "--size", "3"][..],
        &["rate", "--rate", "0"],
        &["nonsense"],
        &["connect", "--transport", "pipe"],
        &["parallel", "--transport", "pipe"],
        &["parallel", "--streams", "0"],
        &["parallel", "--unread", "199"],
        &["parallel", "--one-process", "--pin", "0,1"],
        &["ping", "--one-process"],
        &["ping", "--fresh"],
        &["ping", "--messages", "100"],
        &["connect", "--messages", "0"],
        &["--unread", "1"],
        &["ping", "--transport", "uds", "--pin", "9999,9998"],
    ] {
        let output = bench(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{arguments:?}");
    }
}

const KEYS: [&str; 16] = [
    "scenario",
    "transport",
    "wait",
    "size",
    "streams",
    "ops",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p999_ns",
    "max_ns",
    "mean_ns",
    "cpu_ns_per_op",
    "ops_per_s",
    "bytes_per_s",
    "touched",
];
