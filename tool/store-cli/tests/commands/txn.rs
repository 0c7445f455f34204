//! Transactions on the command line: two shard processes, clients that are killed, and a shard that
//! restarts without its memory.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use remora_netns::Process;
use remora_store::Random;
use remora_store::txn::shard_of;

use crate::running::{Ended, Scratch, Server, command, finish, remora};

const DESIGNS: [&str; 2] = ["prism-tx", "farm"];

/// Starts one of two shards on a free port.
#[track_caller]
fn shard(design: &str, port: &str, number: usize, more: &[&str]) -> Server {
    let number = number.to_string();
    let words =
        ["serve", "txn", "--listen", "127.0.0.1:0", "--keys", "200", "--shards", "2", "--shard", &number];
    let mut command = command(&words);
    command.args(["--design", design, "--port", port]).args(more);
    Server::of(command, design, port)
}

/// A store with two shards.
struct Shards {
    alive: Vec<Server>,
    addresses: String,
    port: String,
}

impl Shards {
    #[track_caller]
    fn start(design: &str, port: &str, more: &[&str]) -> Shards {
        let alive: Vec<Server> = (0..2).map(|number| shard(design, port, number, more)).collect();
        let addresses: Vec<&str> = alive.iter().map(|server| server.address.as_str()).collect();
        Shards { addresses: addresses.join(","), alive, port: port.to_owned() }
    }

    /// Returns the arguments of `remora txn` for this store.
    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["txn"], words, &["--shards", &self.addresses, "--port", &self.port]].concat()
    }

    #[track_caller]
    fn txn(&self, words: &[&str]) -> Ended {
        remora(&self.words(words))
    }

    /// Returns the numbers under the keys, read in one transaction.
    #[track_caller]
    fn numbers(&self, keys: &[String]) -> Vec<i64> {
        let words: Vec<&str> = ["get"].into_iter().chain(keys.iter().map(String::as_str)).collect();
        self.txn(&words).good().lines().map(|line| line.parse().expect("a number")).collect()
    }

    /// Runs these lines in a shell and returns its answers.
    #[track_caller]
    fn shell(&self, lines: &str) -> Ended {
        let file = Scratch::new(lines.as_bytes());
        let mut shell = command(&self.words(&["shell"]));
        finish(shell.stdin(Stdio::from(std::fs::File::open(file.path()).expect("it"))))
    }
}

/// A shell that executes single lines.
struct Shell(Process);

impl Shell {
    #[track_caller]
    fn open(shards: &Shards) -> Shell {
        Shell(Process::start_piped(&mut command(&shards.words(&["shell"]))))
    }

    /// Executes a line and returns its answer.
    #[track_caller]
    fn ask(&mut self, line: &str) -> String {
        self.0.send(line);
        self.0.line()
    }

    /// Returns the number under a key, or `None` if the transaction was aborted.
    #[track_caller]
    fn number(&mut self, key: &str) -> Option<i64> {
        let answer = self.ask(&format!("GET {key}"));
        let value = answer.strip_prefix("VALUE ").map(|value| value.parse().expect("a number"));
        assert!(value.is_some() || answer.starts_with("ABORTED"), "{answer}");
        value
    }

    /// Moves an amount from one account to another, and repeats the transaction until it commits.
    #[track_caller]
    fn transfer(&mut self, source: &str, target: &str, amount: i64) {
        while !self.try_transfer(source, target, amount) {}
    }

    #[track_caller]
    fn try_transfer(&mut self, source: &str, target: &str, amount: i64) -> bool {
        assert_eq!(self.ask("BEGIN"), "OK");
        let Some(has) = self.number(source) else { return false };
        let Some(other) = self.number(target) else { return false };
        assert_eq!(self.ask(&format!("PUT {source} {}", has - amount)), "OK");
        assert_eq!(self.ask(&format!("PUT {target} {}", other + amount)), "OK");
        let answer = self.ask("COMMIT");
        assert!(answer == "COMMITTED" || answer.starts_with("ABORTED"), "{answer}");
        answer == "COMMITTED"
    }

    /// Returns the numbers under all keys, read in one transaction.
    #[track_caller]
    fn snapshot(&mut self, keys: &[String]) -> Vec<i64> {
        loop {
            assert_eq!(self.ask("BEGIN"), "OK");
            let numbers: Option<Vec<i64>> = keys.iter().map(|key| self.number(key)).collect();
            let Some(numbers) = numbers else { continue };
            if self.ask("COMMIT") == "COMMITTED" {
                return numbers;
            }
        }
    }
}

/// Creates accounts with 100 each, half of them on each shard.
#[track_caller]
fn accounts(shards: &Shards, count: usize) -> Vec<String> {
    let on = |shard: usize| {
        let names = (0..).map(|number| format!("account-{number}"));
        names.filter(move |name| shard_of(name.as_bytes(), 2) == shard).take(count / 2)
    };
    let keys: Vec<String> = on(0).zip(on(1)).flat_map(|(one, other)| [one, other]).collect();
    let pairs = keys.iter().flat_map(|key| [key.as_str(), "100"]);
    shards.txn(&["put"].into_iter().chain(pairs).collect::<Vec<_>>()).good();
    keys
}

/// Runs clients that transfer between shared accounts, and one that only reads them.
#[track_caller]
fn nothing_is_lost_or_torn(design: &str, port: &str) {
    let shards = Shards::start(design, port, &[]);
    let keys = accounts(&shards, 4);
    let done = AtomicBool::new(false);
    let shards = &shards;
    let keys = &keys[..];
    let done = &done;
    std::thread::scope(|scope| {
        let transfers = |seed: u64| {
            let mut shell = Shell::open(shards);
            let mut random = Random::new(seed);
            for _ in 0..20 {
                let source = random.below(4) as usize;
                let target = (source + 1 + random.below(3) as usize) % 4;
                shell.transfer(&keys[source], &keys[target], 1 + random.below(20) as i64);
            }
        };
        let looks = scope.spawn(move || {
            let mut shell = Shell::open(shards);
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                let numbers = shell.snapshot(keys);
                assert_eq!(numbers.iter().sum::<i64>(), 400, "a torn snapshot: {numbers:?}");
                looks += 1;
            }
        });
        let busy: Vec<_> = (1..=3).map(|seed| scope.spawn(move || transfers(seed))).collect();
        let busy: Vec<_> = busy.into_iter().map(|client| client.join()).collect();
        done.store(true, Ordering::Relaxed);
        looks.join().expect("whole snapshots");
        busy.into_iter().for_each(|client| client.expect("a client"));
    });
    assert_eq!(shards.numbers(keys).iter().sum::<i64>(), 400);
}

/// Moves amounts between keys of two shards from several client processes. The total is conserved, and no
/// snapshot is torn.
#[test]
fn over_shm_nothing_is_lost_or_torn() {
    DESIGNS.into_iter().for_each(|design| nothing_is_lost_or_torn(design, "shm"));
}

#[test]
fn over_udp_nothing_is_lost_or_torn() {
    DESIGNS.into_iter().for_each(|design| nothing_is_lost_or_torn(design, "udp"));
}

/// Kills clients one after the other while they move money. Their transactions are complete or absent, and
/// block nobody.
#[track_caller]
fn the_killed_block_nobody(design: &str, port: &str, times: u32) {
    let shards = Shards::start(design, port, &[]);
    let keys = accounts(&shards, 2);
    for _ in 0..times {
        let before = shards.numbers(&keys);
        let words = ["add", &keys[0], "-1", &keys[1], "1", "--times", "1000000000"];
        let mut busy = command(&shards.words(&words)).stdout(Stdio::null()).spawn().expect("the binary");
        // The client is in the middle of a transaction from its first one on.
        while shards.numbers(&keys) == before {
            std::thread::sleep(Duration::from_millis(2));
        }
        busy.kill().expect("a child");
        busy.wait().expect("a child");
        let after = shards.numbers(&keys);
        assert_eq!(after.iter().sum::<i64>(), 200, "{after:?}");
        shards.txn(&["add", &keys[0], "5", &keys[1], "-5"]).good();
    }
}

#[test]
fn clients_that_are_killed_block_nobody_and_leave_all_or_nothing() {
    the_killed_block_nobody("prism-tx", "shm", 4);
    the_killed_block_nobody("farm", "udp", 2);
}

/// Op-codes of frames: SEND Only with Immediate, WRITE Only with Immediate, compare-and-swap (also that of
/// PRISM), and PRISM's chains.
const SEND_IMM: u8 = 0x05;
const WRITE_IMM: u8 = 0x0b;
const SWAP: u8 = 0x13;
const CHAIN: u8 = 0xc1;

/// Runs a transfer on a client that loses all its frames with `opcode` after the first `sent`. Returns
/// whether the transfer happened. A retransmitted frame counts again, so the client may have got less far.
#[track_caller]
fn cut_off_after(shards: &Shards, keys: &[String], opcode: u8, sent: u32) -> bool {
    let before = shards.numbers(keys);
    // Joining the store takes two compare-and-swaps and no other of these frames.
    let roll_call = if opcode == SWAP { 2 } else { 0 };
    let rule = format!(
        "[[rule]]\nfault = \"drop\"\ndirection = \"out\"\nopcodes = [{opcode}]\nafter = {}\n",
        sent + roll_call
    );
    let rules = Scratch::new(rule.as_bytes());
    let ended = shards.txn(&["add", &keys[0], "-7", &keys[1], "7", "--fault", rules.path()]);
    let after = shards.numbers(keys);
    let moved = before[0] - after[0];
    assert_eq!(after[1] - before[1], moved, "{sent} were sent: {before:?}, {after:?}");
    assert!(moved == 0 || moved == 7, "{sent} were sent: {before:?}, {after:?}");
    assert!(ended.status == 1 || moved == 7, "{sent} were sent, and the client was told that it happened");
    shards.txn(&["add", &keys[0], &moved.to_string(), &keys[1], &(-moved).to_string()]).good();
    moved == 7
}

#[test]
fn a_client_of_prism_tx_that_is_cut_off_at_any_step_of_its_commit_leaves_all_or_nothing() {
    let shards = Shards::start("prism-tx", "shm", &[]);
    let keys = accounts(&shards, 2);
    let happens = |opcode, sent| cut_off_after(&shards, &keys, opcode, sent);
    // The two versions are stored, but the transaction is not decided.
    assert!(!happens(CHAIN, 1) && !happens(CHAIN, 2));
    // The transaction is decided. The client does not need to report it to the other shard.
    assert!((0..10).any(|_| happens(CHAIN, 3)) && (0..10).any(|_| happens(SWAP, 0)));
}

#[test]
fn a_client_of_farm_that_is_cut_off_at_any_step_of_its_commit_leaves_all_or_nothing() {
    let shards = Shards::start("farm", "shm", &[]);
    let keys = accounts(&shards, 2);
    let happens = |opcode, sent| cut_off_after(&shards, &keys, opcode, sent);
    // The client has no lock, one lock, or two locks, and no shard knows more.
    assert!(!happens(WRITE_IMM, 0) && !happens(WRITE_IMM, 1) && !happens(SEND_IMM, 0));
    // One shard has updated and unlocked, and the other one does not know the decision yet.
    assert!((0..10).any(|_| happens(SEND_IMM, 1)));
}

#[test]
fn a_shard_that_began_anew_is_told_plainly() {
    for design in DESIGNS {
        for index in 0..2 {
            let mut shards = Shards::start(design, "shm", &[]);
            let keys = accounts(&shards, 2);
            let address = shards.alive[index].address.clone();
            let mut standing = Shell::open(&shards);
            assert_eq!(standing.ask("BEGIN"), "OK");
            // The shard's process ends, and a new one takes its place.
            let _ = std::mem::replace(&mut shards.alive[index], shard(design, "shm", index, &[]));
            shards.addresses = shards.addresses.replace(&address, &shards.alive[index].address);
            let message = format!("shard {index} at {} has begun anew", shards.alive[index].address);
            shards.txn(&["get", &keys[0]]).one_line(&message);
            shards.txn(&["put", &keys[0], "1"]).one_line("start them anew, together");
        }
    }
}

#[test]
fn lines_are_answered_one_by_one_and_errors_teach() {
    let shards = Shards::start("prism-tx", "shm", &["--max-keys", "3", "--value-len", "10"]);
    let script = "# a comment\n\nGET a\nBEGIN\nbegin\nGET a\nPUT a one two\nGET a\nPUT b \\x00\\n\\\\\nCOMMIT\nCOMMIT\n\
                  BEGIN\nGET b\nDELETE a\nGET a\nABORT\nBEGIN\nGET a\nPUT a 12345678901\nPUT b 1\nPUT c 1\nPUT d 1\nSELECT\nGET\nDELETE a\nCOMMIT\nBEGIN\nGET a\nPUT a lost";
    let ended = shards.shell(script);
    let expected = [
        "ERROR there is no transaction: BEGIN one",
        "OK",
        "ERROR a transaction is open: COMMIT or ABORT it first",
        "ABSENT",
        "OK",
        "VALUE one two",
        "OK",
        "COMMITTED",
        "ERROR there is no transaction: BEGIN one",
        "OK",
        "VALUE \\x00\\n\\\\",
        "OK",
        "ABSENT",
        "ABORTED",
        "OK",
        "VALUE one two",
        "ERROR the value has more than the 10 bytes that the shards take",
        "OK",
        "OK",
        "ERROR a transaction has 3 keys at most: the shards' --max-keys",
        "ERROR unknown command SELECT; commands: BEGIN, GET key, PUT key value, DELETE key, COMMIT, ABORT",
        "ERROR GET needs one key: GET key",
        "OK",
        "COMMITTED",
        "OK",
        "ABSENT",
        "OK",
    ];
    assert_eq!(ended.out.lines().collect::<Vec<_>>(), expected);
    ended.one_line("7 lines failed");
    shards.txn(&["get", "b", "c"]).good();
    shards.txn(&["get", "a"]).one_line("no such key: a");
    assert_eq!(shards.shell("BEGIN\nGET b\nCOMMIT\n").good(), "OK\nVALUE 1\nCOMMITTED\n");
}

/// Returns the terminal output of a shell into which these lines are typed.
#[track_caller]
fn typed(shards: &Shards, lines: &str) -> String {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&near).and_then(|()| unlockpt(&near)).expect("a terminal");
    let name = ptsname(&near, Vec::new()).expect("its name").into_string().expect("ASCII");
    let far = std::fs::File::options().read(true).write(true).open(name).expect("its other end");
    let mut shell = command(&shards.words(&["shell"]));
    shell.stdin(far.try_clone().expect("it")).stdout(far).stderr(Stdio::null());
    let mut child = shell.spawn().expect("the binary");
    // The child now has the only other end of the terminal.
    drop(shell);
    let mut near = std::fs::File::from(near);
    let mut shown = Vec::new();
    let mut buffer = [0; 4096];
    // The last byte is Ctrl-D, which ends the input.
    near.write_all(&[lines.as_bytes(), &[4]].concat()).expect("a terminal");
    while let Ok(count @ 1..) = near.read(&mut buffer) {
        shown.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().expect("a child").success(), "who types errors sees them");
    String::from_utf8_lossy(&shown).into_owned()
}

#[test]
fn a_person_is_prompted_and_a_script_is_not() {
    let shards = Shards::start("prism-tx", "shm", &[]);
    let shown = typed(&shards, "BEGIN\nCOMMIT\nGET\n");
    for words in ["> OK", "txn> COMMITTED", "> ERROR GET needs one key"] {
        assert!(shown.contains(words), "{words:?} in {shown:?}");
    }
    assert_eq!(shards.shell("BEGIN\nCOMMIT\n").good(), "OK\nCOMMITTED\n");
}

#[test]
fn a_transaction_that_the_shards_wait_for_is_given_up_and_its_client_stays() {
    let shards = Shards::start("prism-tx", "shm", &[]);
    let keys = accounts(&shards, 2);
    let mut shell = Shell::open(&shards);
    assert_eq!(shell.ask("BEGIN"), "OK");
    assert_eq!(shell.number(&keys[0]), Some(100));
    // A client that leaves makes the shards look for its buffers and wait for all open transactions.
    shards.txn(&["get", &keys[0]]).good();
    // This is longer than shards wait for a client.
    std::thread::sleep(Duration::from_secs(8));
    let answer = shell.ask(&format!("GET {}", keys[0]));
    assert!(answer.starts_with("ABORTED nothing happened: the idle transaction delayed"), "{answer}");
    shell.transfer(&keys[0], &keys[1], 1);
    assert_eq!(shards.numbers(&keys), [99, 101]);
}

#[test]
fn who_was_slower_is_told_so_and_begins_again() {
    for design in DESIGNS {
        let shards = Shards::start(design, "shm", &[]);
        let keys = accounts(&shards, 2);
        let mut one = Shell::open(&shards);
        let mut other = Shell::open(&shards);
        for shell in [&mut one, &mut other] {
            assert_eq!(shell.ask("BEGIN"), "OK");
            assert_eq!(shell.number(&keys[0]), Some(100));
            assert_eq!(shell.number(&keys[1]), Some(100));
        }
        assert_eq!(one.ask(&format!("PUT {} 0", keys[0])), "OK");
        assert_eq!(one.ask("COMMIT"), "COMMITTED");
        assert_eq!(other.ask(&format!("PUT {} 0", keys[1])), "OK");
        assert!(other.ask("COMMIT").starts_with("ABORTED nothing happened: another transaction was faster"));
        assert_eq!(
            shards.numbers(&keys),
            [0, 100],
            "not both: each had seen that the other account was full"
        );
        other.transfer(&keys[1], &keys[0], 1);
        assert_eq!(shards.numbers(&keys), [1, 99]);
    }
}

#[test]
fn shards_come_from_a_map_and_clients_that_left_make_room_for_others() {
    for design in DESIGNS {
        let shards = Shards::start(design, "shm", &["--clients", "2"]);
        let mut map = String::new();
        for (number, server) in shards.alive.iter().enumerate() {
            let address = &server.address;
            writeln!(map, "[[server]]\nname = \"{number}\"\nshard = {number}\naddress = \"{address}\"")
                .expect("it");
        }
        let map = Scratch::new(map.as_bytes());
        for round in 1..=6 {
            let sum = remora(&["txn", "add", "a", "1", "b", "1", "--members", map.path()]).good();
            assert_eq!(sum, format!("{round}\n{round}\n"));
        }
    }
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let shards = Shards::start("prism-tx", "shm", &["--key-len", "8"]);
    let [a, b] = [0, 1].map(|index| shards.alive[index].address.as_str());
    let get = |shards: &str| remora(&["txn", "get", "key", "--shards", shards]);
    get(&format!("{b},{a}")).one_line("this is shard 1 of 2, and the client takes it for shard 0 of 2");
    get(a).one_line("this is shard 0 of 2, and the client takes it for shard 0 of 1");
    get(&format!("{a},127.0.0.1:1"))
        .one_line("no shard answers at 127.0.0.1:1: start it with `remora serve txn");
    let other = shard("farm", "shm", 1, &["--key-len", "8"]);
    get(&format!("{a},{}", other.address)).one_line("another design or other limits than shard 0");
    let kv = Server::start("farm", "shm", &[]);
    get(&format!("{a},{}", kv.address)).one_line(&kv.address);
    remora(&["kv", "get", "key", "--connect", a]).one_line("this is a shard of transactions");
    shards.txn(&["get", "123456789"]).one_line("more than the 8 bytes that the shards take");
    shards.txn(&["put", "a", "1", "b"]).one_line("\"b\" has no value");
    shards.txn(&["put", "a", "blue"]).good();
    shards.txn(&["add", "a", "1"]).one_line("a holds \"blue\", which is no number");
    shards.txn(&["add", "a", "one"]).one_line("\"one\" is not a number; it cannot be added to a");
    remora(&["txn", "get", "key"]).bad_arguments("required");
    remora(&["txn", "get", "key", "--shards", "nonsense"]).bad_arguments("nonsense");
    remora(&["txn", "get", "key", "--members", "/there/is/none"]).one_line("/there/is/none");
    let [x, y] = ["127.0.0.1:1", "127.0.0.1:2"];
    let twice =
        format!("[[server]]\nname = \"x\"\naddress = \"{x}\"\n[[server]]\nname = \"y\"\naddress = \"{y}\"\n");
    let twice = Scratch::new(twice.as_bytes());
    remora(&["txn", "get", "key", "--members", twice.path()])
        .one_line("two servers of shard 0, \"x\" and \"y\"");
    remora(&["serve", "txn", "--shard", "2", "--shards", "2"]).one_line("there is no shard 2 of 2");
    remora(&["serve", "txn", "--keys", "10000000"]).one_line("ask for fewer --keys");
    remora(&["serve", "txn", "--design", "farm", "--clients", "1024", "--window", "64", "--max-keys", "64"])
        .one_line("ask for fewer --clients");
    remora(&["serve", "txn", "--keys", "0"]).bad_arguments("0");
}
