//! The meta commands; `tool/store-cli/tests/commands/cache/meta.rs` compares them with memcached's.

use super::TestClient;

#[track_caller]
fn exchange(talk: &mut TestClient, input: &str, expected: &str) {
    assert_eq!(talk.tell(input), expected, "{input:?}");
}

#[test]
fn an_item_is_told_as_its_flags_say() {
    let mut talk = TestClient::new();
    let talk = &mut talk;
    exchange(talk, "mg a v\r\nmg a k O7\r\nmg a q v\r\nmn\r\n", "EN\r\nEN ka O7\r\nMN\r\n");
    exchange(talk, "ms a 2 F5 T30 k O1 c\r\nhi\r\n", "HD ka O1 c1\r\n");
    exchange(talk, "mg a s v f t c k h l O9 q\r\n", "VA 2 s2 f5 t30 c1 ka h0 l0 O9\r\nhi\r\n");
    talk.pass(5);
    exchange(talk, "mg a t l u h\r\nmg a t l h\r\nmg a l\r\n", "HD t25 l5 h1\r\nHD t25 l5 h1\r\nHD l0\r\n");
    exchange(talk, "mg a T100 t\r\nmg a t\r\nmg a T0 t\r\n", "HD t100\r\nHD t100\r\nHD t-1\r\n");
    exchange(talk, "mg a T-1\r\nmg a\r\n", "HD\r\nEN\r\n");
}

#[test]
fn keys_in_base64_are_told_in_base64() {
    let mut talk = TestClient::new();
    let talk = &mut talk;
    exchange(
        talk,
        "ms AAog/w== 3 b k\r\nabc\r\nmg AAog/w== b k v\r\n",
        "HD kAAog/w== b\r\nVA 3 kAAog/w== b\r\nabc\r\n",
    );
    exchange(talk, "md AAog/w== b q\r\nmg AAog/w== b k\r\n", "EN kAAog/w== b\r\n");
    exchange(
        talk,
        "ms YQ== 1 b\r\nx\r\nmg a k\r\nget a\r\n",
        "HD\r\nHD kYQ== b\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
    );
}

#[test]
fn one_client_wins_the_right_to_store_anew() {
    let mut talk = TestClient::new();
    let talk = &mut talk;
    exchange(talk, "mg a N30 v t\r\nmg a N30 v t\r\n", "VA 0 t30 W\r\n\r\nVA 0 t30 Z\r\n\r\n");
    exchange(talk, "ms a 1 T60\r\nx\r\nmg a R30 v\r\n", "HD\r\nVA 1\r\nx\r\n");
    talk.pass(31);
    exchange(
        talk,
        "mg a R30 v\r\nmg a R30\r\nms a 1\r\ny\r\nmg a R30 v\r\n",
        "VA 1 W\r\nx\r\nHD Z\r\nHD\r\nVA 1\r\ny\r\n",
    );
    exchange(
        talk,
        "md a I T30\r\nmg a v t\r\nmg a v t\r\n",
        "HD\r\nVA 1 t30 X W\r\ny\r\nVA 1 t30 Z X\r\ny\r\n",
    );
    exchange(talk, "ms a 1 I T90 C1\r\nz\r\nmg a v t\r\n", "HD\r\nVA 1 t30 Z X\r\nz\r\n");
    exchange(talk, "ms a 1 T90 C1\r\nz\r\nms a 1 I T90 C99\r\nz\r\n", "EX\r\nEX\r\n");
}

#[test]
fn modes_store_and_count_as_their_letters_say() {
    let mut talk = TestClient::new();
    let talk = &mut talk;
    exchange(
        talk,
        "ms a 1 MA\r\n1\r\nms a 1 MR\r\n1\r\nms a 1 ME\r\n1\r\nms a 1 ME q\r\n1\r\n",
        "NS\r\nNS\r\nHD\r\nNS\r\n",
    );
    exchange(talk, "ms a 1 MA q\r\n2\r\nms a 1 MP q\r\n0\r\nmg a v\r\n", "VA 3\r\n012\r\n");
    exchange(
        talk,
        "ma a v D5\r\nma a v MD\r\nma a v M- D100\r\n",
        "VA 2\r\n17\r\nVA 2\r\n16\r\nVA 1\r\n0\r\n",
    );
    exchange(
        talk,
        "ma n\r\nma n N0 J13 v t\r\nma n N0 J13 v\r\nma n q v\r\nmn\r\n",
        "NF\r\nVA 2 t-1\r\n13\r\nVA 2\r\n14\r\nMN\r\n",
    );
    exchange(talk, "ma n T60 q\r\nmg n t v\r\n", "VA 2 t60\r\n16\r\n");
    exchange(
        talk,
        "ma n C1 k\r\nmd n C1 k\r\nmd n k O1\r\nmd n k O1\r\n",
        "EX kn\r\nEX kn\r\nHD kn O1\r\nNF kn O1\r\n",
    );
}

/// Regression: `md` and `ma` reported bad client flags in other words than memcached.
#[test]
fn what_is_wrong_with_a_line_is_told_in_memcacheds_words() {
    let mut talk = TestClient::new();
    for (line, answer) in [
        ("mg", "ERROR"),
        ("me", "CLIENT_ERROR bad command line format"),
        ("mg a x", "CLIENT_ERROR invalid flag"),
        ("mg a v v", "CLIENT_ERROR duplicate flag"),
        ("mg a T", "CLIENT_ERROR bad token in command line format"),
        ("mg a Fx", "CLIENT_ERROR bad command line format"),
        ("mg a Dx", "CLIENT_ERROR invalid numeric delta value"),
        ("mg a MII", "CLIENT_ERROR incorrect length for M token"),
        ("mg YQ b", "CLIENT_ERROR error decoding key"),
        ("mg a O12345678901234567890123456789012", "CLIENT_ERROR opaque token too long"),
        ("mg a P P P P P P P P P P P P P P P P P P", "CLIENT_ERROR options flags are too long"),
        ("md a P P P P P P P P P P P P P P P P P P", "CLIENT_ERROR options flags too long"),
        ("md a x", "CLIENT_ERROR invalid or duplicate flag"),
        ("md a Fx", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma a Dx", "CLIENT_ERROR invalid or duplicate flag"),
        ("ma a MZ", "CLIENT_ERROR invalid mode for ma M token"),
        ("mn whatever", "MN"),
    ] {
        assert_eq!(talk.tell(format!("{line}\r\n")), format!("{answer}\r\n"), "{line:?}");
    }
}

#[test]
fn what_is_known_of_an_item_is_told() {
    let mut talk = TestClient::new();
    talk.tell("set abc 5 30 2\r\nhi\r\n");
    talk.pass(3);
    assert_eq!(talk.tell("me abc\r\n"), "ME abc exp=-27 la=3 cas=1 fetch=no cls=1 size=68\r\n");
    assert_eq!(
        talk.tell("get abc\r\nme YWJj b\r\n").lines().last(),
        Some("ME abc exp=-27 la=0 cas=1 fetch=yes cls=1 size=68")
    );
    assert_eq!(talk.tell("me none\r\n"), "EN\r\n");
}
