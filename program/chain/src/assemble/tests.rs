use super::*;
use crate::{Machine, Names, Numbers, disassemble, layout, link};

/// A program with every verb, every kind of data, and names used before and after their definition.
const ALL: &str = r#"
; everything once
data box
    x:      var 41
    list:   word 1 -2 &x [write signaled 7]
    area:   space 24
    hello:  text "hello"

queue in
    receive -> x, test.comparand, area+8 8

queue main posted 64
    first:  read x -> test.id signaled
            wait main first
            wait in.received 1
            cas test.header, [nop 5] => [write] -> area
            add list+8, 2
            max x, 100 -> area+16
            write 7 -> area
            write hello -> area 5 solicited
            enable later test
            enable other all

queue later managed enabled test
            nop fence
    test:   dormant write x -> area id 3

queue other recycled 8
            xor x, &area
            both x, 1
            send x

region table 64
    inside: word 7 &inside
queue lists
            read table -> x 8, area+8 16, hello 4
            write x 8, list 8 -> table
            send x 8, list+8 8
repeat 2
    n@:     wait main 1
            enable lists n@@
end
    n3:     nop
"#;

fn lines(text: &str) -> (crate::Program, Vec<Vec<String>>) {
    let program = assemble(text).unwrap();
    let numbers: Numbers = layout(&program);
    let image = link(&program, &numbers);
    let names = Names::new(&program, &numbers);
    let queue = |(queue, slots): (&crate::Queue, &Vec<[u8; 64]>)| {
        let line = |work: &crate::Work| {
            let slot = work.slot as usize;
            disassemble(&slots[slot], &slots[slot + 1..], &names)
        };
        queue.works.iter().map(line).collect()
    };
    let lines = program.queues.iter().zip(&image.queues).map(queue).collect();
    (program, lines)
}

#[test]
fn what_is_assembled_is_disassembled_to_the_same() {
    let (program, listing) = lines(ALL);
    let main = [
        "read x -> test.id 6 signaled",
        "wait main 1",
        "wait in.received 1",
        "cas test.header, [nop 5] => [write] -> area",
        "add list+8, 2",
        "max x, 100 -> area+16",
        "write 7 -> area",
        "write hello -> area 5 solicited",
        "enable later 2",
        "enable other 3",
    ];
    assert_eq!(listing[1], main);
    assert_eq!(listing[2], ["nop fence", "dormant write x -> area 8 id 3"]);
    assert_eq!(listing[3], ["xor x, &area", "both x, 1", "send x 8"]);
    let lists = [
        "read inside -> x 8, area+8 16, hello 4",
        "write x 8, list 8 -> inside",
        "send x 8, list+8 8",
        "wait main 1",
        "enable lists 9",
        "wait main 1",
        "enable lists 11",
        "nop",
    ];
    assert_eq!(listing[4], lists);
    assert_eq!(
        (program.queues[4].posted(), program.queues[4].works[1].slot),
        (11, 2),
        "two pieces in a slot more"
    );
    assert!(program.sections.iter().any(|section| section.given && section.bytes.len() == 64));
    assert_eq!(
        (program.queues[1].posted(), program.queues[2].enabled),
        (11, 2),
        "one brings its bytes along"
    );
    let receive = &program.queues[0].receives[0];
    assert_eq!(receive.iter().map(|piece| piece.len).collect::<Vec<_>>(), [8, 6, 8]);
}

#[test]
fn a_line_of_the_disassembler_is_one_of_the_assembler() {
    let (first, listing) = lines(ALL);
    let data = ALL.split("queue main").next().unwrap();
    let heads = [
        "",
        "queue main posted 64",
        "queue later managed enabled test",
        "queue other recycled 8",
        "region table 64\n inside: word 7 &inside\nqueue lists",
    ];
    let mut text = data.to_owned();
    for (index, head) in heads.iter().enumerate().skip(1) {
        text += &format!("\n{head}\n");
        for (work, line) in first.queues[index].works.iter().zip(&listing[index]) {
            let label = work.label.as_ref().map_or(String::new(), |label| format!("{label}: "));
            text += &format!("{label}{line}\n");
        }
    }
    let (second, again) = lines(&text);
    assert_eq!(again, listing);
    assert_eq!(link(&second, &layout(&second)), link(&first, &layout(&first)));
}

#[test]
fn mistakes_point_at_their_place() {
    let cases = [
        ("nop", 1, 1, "begins with"),
        ("queue main\n  nopp", 2, 3, "is no verb"),
        ("queue main\n  add x, 1", 2, 7, "nothing is called `x`"),
        ("data d\n x: word 1\nqueue main\n  add x.id, 1", 4, 7, "which has no fields"),
        ("queue main\n a: nop\n  add a.ids, 1", 3, 7, "has no `ids`"),
        ("queue main\n a: nop\n  wait main a", 3, 13, "not signaled"),
        ("queue main\n wait mein 1", 2, 7, "no queue `mein`"),
        ("queue main\n enable main b", 2, 14, "no work request `b`"),
        ("queue main\n a: nop\n a: nop", 3, 2, "named in line 2"),
        ("queue main\n nop nop", 2, 6, "ends with"),
        ("queue main\n cas main, 1 2", 2, 14, "`=>` is missing"),
        ("queue main\n write 1 2", 2, 10, "`->` is missing"),
        ("queue main\n dormant write 1 -> main", 2, 25, "cannot be dormant"),
        ("queue main manged", 1, 12, "`posted`, `managed` or `recycled`"),
        ("queue main enabled 1", 1, 12, "`posted`, `managed` or `recycled`"),
        ("queue main\nqueue main", 2, 7, "already"),
        ("data d\n word 1", 2, 2, "data has a name"),
        ("data d\n x: wrod 1", 2, 5, "data is"),
        ("data d\n x: word [nop 0x1000000000000]", 2, 15, "48 bits"),
        ("queue main\n add main, x", 2, 12, "copied into it first"),
        ("region", 1, 7, "a region has a name"),
        ("region r", 1, 9, "how many bytes"),
        ("region r 8\nregion r 8", 2, 8, "`r` already"),
        ("region r 8\n x: word 1 2", 2, 13, "the region has 8 bytes"),
        ("data d\n x: word 1\nqueue main\n read x -> x, x 8", 4, 13, "how many bytes of the first piece"),
        ("data d\n x: word 1\nqueue main\n read x -> x 8, x", 4, 18, "how many bytes"),
        ("data d\n x: word 1\nqueue main\n write x 8, x 8 -> x 16", 4, 22, "say how long they are"),
        ("data d\n x: word 1\nqueue main\n dormant send x 8, x 8", 4, 23, "cannot be dormant"),
        ("queue main\n repeat\n nop\nend", 2, 2, "how often"),
        ("queue main\nrepeat 2\n repeat 2\nend\nend", 3, 2, "in another"),
        ("queue main\n end", 2, 2, "ends no `repeat`"),
        ("queue main\nrepeat 2\n nop", 2, 1, "has no `end`"),
        ("queue main\nrepeat 2\n x@: nopp\nend", 3, 6, "no verb"),
    ];
    for (text, line, column, description) in cases {
        let mistake = assemble(text).unwrap_err();
        assert_eq!((mistake.line, mistake.column), (line, column), "{text}: {mistake}");
        assert!(mistake.what.contains(description), "{text}: {mistake}");
    }
}

#[test]
fn a_mistake_is_shown_with_its_line() {
    let text = "queue main\n\tnopp 1";
    let shown = assemble(text).unwrap_err().show("a.chain", text);
    let lines: Vec<_> = shown.lines().collect();
    assert!(lines[0].starts_with("a.chain:2:2: `nopp` is no verb"), "{shown}");
    assert_eq!(lines[1..], ["  | \tnopp 1", "  | \t^"]);
}

/// Checks that pieces of a valid program in any order cause an error but never a panic.
#[test]
fn no_text_is_too_bad_to_be_refused() {
    let words: Vec<&str> = ALL.split_inclusive([' ', '\n']).collect();
    let mut seed = 7_u64;
    for _ in 0..2000 {
        let mut text = String::new();
        for _ in 0..40 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text += words[(seed >> 33) as usize % words.len()];
        }
        if let Ok(program) = assemble(&text) {
            drop(Machine::load(program));
        }
    }
}
