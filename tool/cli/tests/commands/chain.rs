//! `remora chain`: assembling, verifying, running and tracing programs.

use crate::running::{Scratch, remora};

const IF: &str = include_str!("../../../../program/chain/programs/if.chain");
const COUNT: &str = include_str!("../../../../program/chain/programs/count.chain");
const ASK: &str = include_str!("../../../../program/chain/programs/ask.chain");

#[test]
fn a_chain_is_assembled_and_disassembled() {
    let text = Scratch::new(IF.as_bytes());
    let listing = remora(&["chain", "asm", text.path()]).good();
    assert!(listing.contains("queue main posted, 5 slots of 8"), "{listing}");
    assert!(
        listing.contains("cas then.header, [nop signaled 5] => [write signaled 5] signaled"),
        "{listing}"
    );
    assert!(listing.contains("0701000000000000"), "its bytes: {listing}");
    let image = Scratch::new(remora(&["chain", "asm", text.path(), "--json"]).good().as_bytes());
    let disassembly = remora(&["chain", "disasm", image.path()]).good();
    for line in
        ["read x -> then.id 6 signaled", "wait main 2", "then:       dormant write one -> answer 8 signaled"]
    {
        assert!(disassembly.contains(line), "{line}: {disassembly}");
    }
    remora(&["chain", "disasm", text.path()]).one_line("not the output of `remora chain asm --json`");
}

#[test]
fn a_chain_runs_and_says_how_it_ended() {
    let text = Scratch::new(IF.as_bytes());
    let out = remora(&["chain", "run", text.path(), "--set", "x=4", "--show", "answer"]).good();
    assert_eq!(out, "answer = 0\n6 work requests executed; nothing is left to do\n");
    let endless = Scratch::new(COUNT.replace("[nop signaled 10]", "[nop signaled 0]").as_bytes());
    let out = remora(&["chain", "run", endless.path(), "--budget", "5000", "--json"]).good();
    assert!(out.contains(r#""end":"budget""#), "{out}");
    let ask = Scratch::new(ASK.as_bytes());
    let message = "port=0500000000000000ff00000000000000";
    let out = remora(&["chain", "run", ask.path(), "--send", message, "--json"]).good();
    assert!(out.contains(r#""greater":[255]"#) && out.contains(r#""done":[1]"#), "{out}");
}

#[test]
fn mistakes_in_a_chain_point_at_their_place() {
    let text = Scratch::new(b"queue main\n  nop\n  nopp signaled\n");
    let ended = remora(&["chain", "run", text.path()]);
    assert_eq!(ended.status, 1);
    let lines: Vec<_> = ended.err.lines().collect();
    assert!(lines[0].contains(":3:3: `nopp` is no verb"), "{lines:?}");
    assert_eq!(lines[1..], ["  | \u{20}\u{20}nopp signaled", "  |   ^"]);
    let text = Scratch::new(b"data d\n x: word 0\nqueue main\n add x+4, 1\n");
    remora(&["chain", "run", text.path()]).one_line("slot 0 of main (line 4): RemoteInvalidRequest");
    remora(&["chain", "run", text.path(), "--set", "y=1"]).one_line("no data word `y`");
    remora(&["chain", "run", text.path(), "--send", "port=00"]).one_line("no queue `port`");
}

#[test]
fn what_is_wrong_with_a_chain_is_found_before_it_runs() {
    let text = Scratch::new(IF.as_bytes());
    assert!(remora(&["chain", "verify", text.path()]).good().starts_with("nothing is wrong"));
    let bad = Scratch::new(IF.replace("queue then managed", "queue then posted").as_bytes());
    let ended = remora(&["chain", "verify", bad.path()]);
    assert_eq!(ended.status, 1);
    assert!(ended.out.contains(":12: fault: main: it changes then, which is posted"), "{}", ended.out);
    assert!(ended.err.contains("has 3 faults"), "{}", ended.err);
    let ended = remora(&["chain", "verify", bad.path(), "--json"]);
    assert!(ended.out.starts_with(r#"{"line":12,"queue":"main","severity":"fault""#), "{}", ended.out);
}

#[test]
fn the_small_language_runs_as_chains() {
    let text = Scratch::new(b"; a sum\nvar n = 10\nvar sum\nwhile n > 0 {\n sum += n\n n -= 1\n}\n");
    let out = remora(&["chain", "run", text.path(), "--show", "sum"]).good();
    assert!(out.starts_with("sum = 55\n"), "{out}");
}

/// Traces the hash GET program for a key that exists and for one that does not.
#[test]
fn a_trace_shows_a_hash_get_at_work() {
    let get = Scratch::new(include_bytes!("../../../../program/chain/programs/offloads/get.chain"));
    let trace = remora(&["chain", "trace", get.path(), "--send", "port=&bucket,[nop 42]"]).good();
    let lines = [
        "port.received  a message of 16 bytes",
        "cas answer.compare, [nop 42] => 1 fence",
        "answer         write_imm value -> reply 24",
    ];
    for line in lines {
        assert!(trace.contains(line), "{line}: {trace}");
    }
    let missed = remora(&["chain", "trace", get.path(), "--send", "port=&bucket,[nop 7]"]).good();
    assert!(missed.contains("answer         write_imm value -> reply 0"), "{missed}");
    remora(&["chain", "run", get.path(), "--send", "port=&buckets"])
        .one_line("words such as 0x2a,&NAME,[nop 42]");
}

#[test]
fn a_trace_says_which_verb_changed_which_bytes() {
    let text = Scratch::new(IF.as_bytes());
    let out = remora(&["chain", "trace", text.path()]).good();
    let expected = "cas then.header, [nop signaled 5] => [write signaled 5] signaled\n         scrap: 0 -> 327936\n         \
                    then.header: [nop signaled 5] -> [write signaled 5]\n";
    assert!(out.contains(expected), "{out}");
    assert!(out.contains("write one -> answer 8 signaled id 5\n         answer: 0 -> 1\n"), "{out}");
}

#[test]
fn a_trace_is_what_perfetto_reads() {
    let text = Scratch::new(IF.as_bytes());
    let out = remora(&["chain", "trace", text.path(), "--format", "chrome"]).good();
    let trace: serde_json::Value = serde_json::from_str(&out).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let names: Vec<_> =
        events.iter().filter(|event| event["ph"] == "M").map(|event| &event["args"]["name"]).collect();
    assert_eq!(names, ["main", "then"]);
    let steps: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(steps.len(), 6);
    assert_eq!((&steps[5]["tid"], &steps[5]["ts"]), (&1.into(), &5.into()));
    assert_eq!(steps[5]["args"]["changes"][0], "answer: 0 -> 1");
}

#[test]
fn the_page_of_a_trace_needs_nothing_from_elsewhere() {
    let text = Scratch::new(IF.as_bytes());
    let page = remora(&["chain", "trace", text.path(), "--format", "html"]).good();
    assert!(!page.contains("http") && !page.contains("src=") && !page.contains("{trace}"), "{page}");
    let data = page.split("type=\"application/json\">").nth(1).unwrap().split("</script>").next().unwrap();
    let trace: serde_json::Value = serde_json::from_str(data).unwrap();
    assert_eq!(trace["queues"][1]["slots"][0]["text"], "dormant write one -> answer 8 signaled");
    let woken = &trace["steps"][2]["rewritten"][0];
    assert_eq!(woken["text"], "write one -> answer 8 signaled id 5");
    assert_eq!((&woken["queue"], &woken["slot"]), (&1.into(), &0.into()));
    assert_eq!(trace["steps"][5]["data"][0]["value"], "1");
}

/// Returns the content of the HTML page in a browser at a step: for each queue its name and its slots, and
/// for each slot its text and CSS classes.
fn drawn(page: &Scratch, step: usize) -> Vec<(String, Vec<(String, String)>)> {
    let browser = ["chromium-headless-shell", "chromium"].into_iter().find_map(|name| {
        let address = format!("file://{}#{step}", page.path());
        let words = ["--no-sandbox", "--disable-gpu", "--headless", "--dump-dom", &address];
        std::process::Command::new(name).args(words).output().ok()
    });
    let out = browser.expect("a browser: `make setup` installs it");
    let page = String::from_utf8(out.stdout).unwrap();
    let between = |text: &str, start: &str, end: &str| {
        text.split_once(start).and_then(|(_, rest)| Some(rest.split_once(end)?.0.to_owned()))
    };
    let body =
        between(&page, "<div id=\"queues\">", "<h2 style").unwrap_or_else(|| panic!("no queues: {page}"));
    let slot = |text: &str| {
        let classes = text.split('"').next().unwrap_or_default().to_owned();
        (between(text, "class=\"text\">", "</span>").expect("a text").replace("&gt;", ">"), classes)
    };
    let queue = |text: &str| {
        let name = between(text, "<h2>", " <small>").expect("a name");
        (name, text.split("<div class=\"").skip(1).map(slot).collect())
    };
    body.split("<section class=\"queue\">").skip(1).map(queue).collect()
}

#[test]
fn a_browser_draws_the_queues_of_a_hash_get_and_the_verb_that_it_wakes() {
    let get = Scratch::new(include_bytes!("../../../../program/chain/programs/offloads/get.chain"));
    let traced = ["chain", "trace", get.path(), "--send", "port=&bucket,[nop 42]", "--format", "html"];
    let page = Scratch::ending(".html", remora(&traced).good().as_bytes());
    let first = drawn(&page, 0);
    let shape: Vec<_> = first.iter().map(|(name, slots)| (name.as_str(), slots.len())).collect();
    assert_eq!(shape, [("port", 1), ("start", 2), ("get", 15)]);
    let text = |queues: &[(String, Vec<(String, String)>)], queue: usize, slot: usize| {
        let (text, classes) = &queues[queue].1[slot];
        (text.clone(), classes.clone())
    };
    assert_eq!(text(&first, 0, 0), ("write_imm bucket -> reply 64".into(), "slot".into()));
    // The message is step 1 and the compare-and-swap step 5, which makes the slot a WRITE of the value.
    let swapped = drawn(&page, 5);
    assert_eq!(text(&swapped, 0, 0), ("write_imm value -> reply 24".into(), "slot rewritten".into()));
    let swap = "cas answer.compare, [nop 42] => 1 fence";
    assert_eq!(text(&swapped, 2, 1), (swap.into(), "slot now".into()));
    // No other slot is marked.
    let marked = swapped.iter().flat_map(|(_, slots)| slots).filter(|(_, classes)| classes != "slot");
    assert_eq!(marked.count(), 2);
}
