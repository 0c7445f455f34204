//! Tests that the recording cipher detects a repeated pair of key and nonce, whichever NIC seals.

use remora_cipher::{Aes, Calls, Record};
use remora_nic::rma::Cipher;

#[test]
fn different_pairs_are_noted_and_the_cipher_seals_and_opens_as_without() {
    let record = Record::new();
    let mut noted = record.wrap(Aes::new(2));
    let mut plain = Aes::new(2);
    for cipher in [&mut noted as &mut dyn Cipher, &mut plain] {
        cipher.load(0, &[1; 16]);
        cipher.load(1, &[2; 16]);
        assert_eq!(cipher.places(), 2);
    }
    // One nonce under two keys, and one key with two nonces, are allowed.
    for (place, nonce) in [(0, [1; 12]), (1, [1; 12]), (1, [2; 12])] {
        let mut one = *b"text";
        let mut other = *b"text";
        let tag = noted.seal(place, &nonce, b"aad", &mut one);
        assert_eq!((tag, one), (plain.seal(place, &nonce, b"aad", &mut other), other));
        assert!(noted.open(place, &nonce, b"aad", &mut one, &tag));
        assert_eq!(&one, b"text");
    }
    assert_eq!(noted.derive(&[3; 16], &[4; 32]), plain.derive(&[3; 16], &[4; 32]));
    noted.wipe(1);
    assert!(!noted.open(1, &[2; 12], b"", &mut [], &[0; 16]));
    assert_eq!(record.pairs(), 3);
    assert_eq!(record.calls(), Calls { load: 2, wipe: 1, seal: 3, open: 4, derive: 1 });
}

#[test]
#[should_panic = "sealed twice under key 07070707070707070707070707070707 and nonce 090909090909090909090909"]
fn a_pair_that_comes_twice_ends_the_test_with_key_and_nonce() {
    let mut noted = Record::new().wrap(Aes::new(1));
    noted.load(0, &[7; 16]);
    let _ = noted.seal(0, &[9; 12], b"one", &mut []);
    let _ = noted.seal(0, &[9; 12], b"another", &mut []);
}

#[test]
#[should_panic = "sealed twice"]
fn two_nics_and_one_that_started_anew_share_the_record() {
    let record = Record::new();
    let seal = |place: usize, nonce: u8| {
        let mut noted = record.wrap(Aes::new(4));
        noted.load(place, &[7; 16]);
        let _ = noted.seal(place, &[nonce; 12], b"", &mut []);
    };
    seal(0, 1);
    seal(1, 2);
    assert_eq!(record.pairs(), 2);
    seal(3, 1);
}

#[test]
fn its_debug_output_has_no_key() {
    let record = Record::new();
    let mut noted = record.wrap(Aes::new(1));
    noted.load(0, &[0xab; 16]);
    let _ = noted.seal(0, &[1; 12], b"", &mut []);
    let shown = format!("{noted:?}").to_lowercase();
    assert!(shown.contains("pairs: 1"), "{shown}");
    assert!(!shown.contains("171") && !shown.contains("abab"), "{shown}");
}
