//! Loading files of keys and values: files with any lengths fit, and an invalid line affects no other line.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::running::{Ended, Scratch, Server, command, finish, free_addresses, part_of, remora};

const DESIGNS: [&str; 5] = ["pilaf", "farm", "two-sided", "prism", "strom"];

/// Starts a server with only these options.
#[track_caller]
fn server(design: &str, more: &[&str]) -> Server {
    let words = ["serve", "kv", "--listen", "127.0.0.1:0", "--design", design];
    Server::of(command(&[&words, more].concat()), design, "shm")
}

/// Runs a command with this standard input.
#[track_caller]
fn fed(words: &[&str], input: &[u8]) -> Ended {
    let file = Scratch::new(input);
    finish(command(words).stdin(std::fs::File::open(file.path()).expect("a scratch file")))
}

/// Returns lines like those of a dictionary.
fn dictionary(lines: u32) -> Vec<u8> {
    (0..lines).flat_map(|n| format!("word{n} what it means, {n}\n").into_bytes()).collect()
}

/// Regression: `remora serve kv --design prism --file` counted 200,000 lines and refused after 138,796,
/// because memory was computed for values of another length.
#[test]
fn prism_takes_a_file_of_200000_lines_with_any_capacity() {
    let file = Scratch::new(&dictionary(200_000));
    for capacity in [&[][..], &["--capacity", "400000"], &["--capacity", "1"]] {
        let server = server("prism", &[&["--file", file.path()], capacity].concat());
        assert_eq!(server.messages, [""; 0]);
        assert_eq!(server.kv("get", &["word199999"]).good(), "what it means, 199999\n");
    }
}

#[test]
fn a_prism_server_for_100000_keys_takes_100000_keys() {
    let keys = part_of(100_000);
    let file = Scratch::new(&dictionary(keys));
    // Clients of prism store without the server's CPU. The default capacity is 100,000 keys.
    let capacity = keys.to_string();
    let words = ["--capacity", &capacity];
    let server = server("prism", if keys == 100_000 { &[] } else { &words });
    let stored = format!("{keys} keys stored, 0 lines left out\n");
    assert_eq!(server.kv("load", &[file.path()]).good(), stored);
}

/// Returns lines with mostly short values, some long ones, and a few of maximum length.
fn mixed() -> Vec<u8> {
    let len = |n: usize| match n {
        0 => 1 << 20,
        n if n % 1000 == 1 => 70_000,
        n if n % 50 == 2 => 4000 + n,
        n => n * 7 % 600,
    };
    (0..6000).flat_map(|n| [format!("key{n} ").as_bytes(), &vec![b'x'; len(n)], b"\n"].concat()).collect()
}

#[test]
fn each_design_takes_values_of_mixed_lengths_that_it_has_counted() {
    let file = Scratch::new(&mixed());
    for design in DESIGNS {
        for more in [&[][..], &["--capacity", "1"], &["--capacity", "50000"], &["--records", "3000"]] {
            let server = server(design, &[&["--file", file.path()], more].concat());
            assert_eq!(server.messages, [""; 0], "{design} {more:?}");
            assert_eq!(server.kv("get", &["key0"]).good().len(), (1 << 20) + 1);
            assert_eq!(server.kv("get", &["key5001"]).good().len(), 70_001);
            // Memory is left to overwrite a value.
            server.kv("put", &["key9", "value"]).good();
        }
    }
}

#[test]
fn each_design_takes_as_many_keys_of_mixed_lengths_as_it_was_made_for() {
    // Key and value have 256 bytes on average.
    let line = |n: u32| format!("key{n} {}\n", "x".repeat(n as usize * 37 % 440));
    let keys = part_of(20_000);
    let file = Scratch::new(&(0..keys).flat_map(|n| line(n).into_bytes()).collect::<Vec<u8>>());
    for design in DESIGNS {
        let server = server(design, &["--capacity", &keys.to_string()]);
        let stored = format!("{keys} keys stored, 0 lines left out\n");
        assert_eq!(server.kv("load", &[file.path()]).good(), stored);
    }
}

/// Regression: one key of 1,025 bytes ended `remora kv load` and dropped the rest of the file.
#[test]
fn a_key_or_value_that_is_too_long_is_one_bad_line() {
    let key = "k".repeat(1025);
    let value = "v".repeat(1001);
    let lines = format!("a 1\n{key} 2\nb {value}\nc 3\nd\ne 4\n");
    let file = Scratch::new(lines.as_bytes());
    for design in DESIGNS {
        let loads = server(design, &["--max-value", "1000"]);
        let loaded = loads.kv("load", &[file.path()]);
        for words in ["line 2: the key is longer", "line 3: the value is longer", "line 5: there is no space"]
        {
            assert!(loaded.err.contains(words), "{design}: {}", loaded.err);
        }
        assert_eq!(loaded.good(), "3 keys stored, 3 lines left out\n");
        assert_eq!(loads.kv("get", &["e"]).good(), "4\n");
        let serves = server(design, &["--max-value", "1000", "--file", file.path()]);
        let text = serves.messages.join("\n");
        assert!(text.contains("line 2: the key is longer than 1024 bytes"), "{design}: {text}");
        assert!(text.contains("3 lines were left out, 3 loaded"), "{design}: {text}");
        assert_eq!(serves.kv("get", &["e"]).good(), "4\n");
    }
}

#[test]
fn a_table_that_is_full_says_at_which_line() {
    let file = Scratch::new(format!("a 1\nb {}\n", "x".repeat(1 << 20)).as_bytes());
    let server = server("two-sided", &["--memory", "100000"]);
    let loaded = server.kv("load", &[file.path()]);
    assert!(loaded.err.contains("line 2, after 1 keys: ") && loaded.err.contains("ENOMEM"), "{}", loaded.err);
    assert_eq!(loaded.status, 1);
}

/// Regression: a byte-order mark became part of the first key.
#[test]
fn what_other_systems_put_around_text_is_no_part_of_keys_and_values() {
    let server = server("farm", &[]);
    let input = b"\xef\xbb\xbffirst 1\r\nsecond 2\r\n\r\nlast 3";
    let loaded = fed(&server.words("load", &["-"]), input);
    assert_eq!(loaded.good(), "3 keys stored, 0 lines left out\n");
    for (key, value) in [("first", "1\n"), ("second", "2\n"), ("last", "3\n")] {
        assert_eq!(server.kv("get", &[key]).good(), value);
    }
    let wide: Vec<u8> = "\u{feff}first 1\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let file = Scratch::new(&wide);
    server.kv("load", &[file.path()]).one_line("iconv -f UTF-16");
    remora(&["serve", "kv", "--listen", "127.0.0.1:0", "--file", file.path()]).one_line("iconv -f UTF-16");
}

#[test]
fn a_server_takes_its_pairs_from_standard_input_and_from_a_pipe() {
    let file = Scratch::new(&dictionary(1000));
    let words = ["serve", "kv", "--listen", "127.0.0.1:0", "--file"];
    let mut input = command(&[&words[..], &["-"]].concat());
    input.stdin(std::fs::File::open(file.path()).expect("a scratch file"));
    let mut pipe = command(&[&words[..], &["/dev/stdin"]].concat());
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    pipe.stdin(reader);
    let feed = std::thread::spawn(move || writer.write_all(&dictionary(1000)).expect("a reader"));
    for command in [input, pipe] {
        let server = Server::of(command, "farm", "shm");
        assert_eq!(server.kv("get", &["word999"]).good(), "what it means, 999\n");
    }
    feed.join().expect("written");
}

#[test]
fn keys_of_any_bytes_are_named_as_they_are_or_with_escapes() {
    let key = b"\xff\xfe\x80";
    let server = server("farm", &[]);
    let input = [&key[..], b" odd\n\xc3\xa5\\ even\n\0 zero\n"].concat();
    assert_eq!(fed(&server.words("load", &["-"]), &input).good(), "3 keys stored, 0 lines left out\n");
    let words = server.words("get", &[]);
    assert_eq!(finish(command(&words).arg(OsStr::from_bytes(key))).good(), "odd\n");
    for (name, value) in [("\\xff\\xfe\\x80", "odd\n"), ("å\\\\", "even\n"), ("\\x00", "zero\n")] {
        assert_eq!(server.kv("get", &["--escaped", name]).good(), value);
    }
    server.kv("put", &["--escaped", "two\\swords\\n", "value"]).good();
    assert_eq!(server.kv("get", &["two words\n"]).good(), "value\n");
    server.kv("delete", &["--escaped", "\\xff\\xfe\\x80"]).good();
    server.kv("get", &["--escaped", "\\xff\\xfe\\x80"]).one_line("no such key: \\xff\\xfe\\x80");
    server.kv("get", &["--escaped", "\\q"]).one_line("for a backslash");
}

/// Regression: a line that is not UTF-8 ended `remora block shell`.
#[test]
fn a_line_that_is_no_text_ends_no_shell() {
    let address = free_addresses(1).remove(0);
    let serve = ["serve", "block", "--replica", "0", "--servers", &address, "--new"];
    let server = Server::of(command(&serve), "block", "shm");
    let input = b"\xef\xbb\xbfwrite 1 \xff\xfe\r\n\xff\xff\nread 1\n";
    let mut shell = command(&["block", "shell", "--servers", &server.address]);
    let file = Scratch::new(input);
    shell.stdin(std::fs::File::open(file.path()).expect("a scratch file")).stderr(Stdio::null());
    let output = shell.output().expect("the binary").stdout;
    assert_eq!(output, b"done\nerror: unknown command; use `read BLOCK` or `write BLOCK VALUE`\n\xff\xfe\n");
}
