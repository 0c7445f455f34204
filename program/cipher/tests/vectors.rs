//! Tests against NIST's test vectors, another implementation and OpenSSL.

use aes_gcm::{AeadInOut, Aes128Gcm, KeyInit};
use hex_literal::hex;
use proptest::prelude::*;
use remora_cipher::Aes;
use remora_nic::rma::Cipher;
use std::collections::BTreeMap;

/// Parses blocks of `Name = hex` lines, NIST's format.
fn vectors(text: &str) -> Vec<BTreeMap<&str, Vec<u8>>> {
    let blocks = text.split("\n\n").filter(|block| block.starts_with("Count"));
    blocks
        .map(|block| {
            let lines = block.lines().filter_map(|line| line.split_once('='));
            lines.map(|(name, hex)| (name.trim(), bytes(hex.trim()))).collect()
        })
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, &digit| byte << 4 | digit as u8)).collect()
}

#[test]
fn nist_vectors_are_sealed_and_opened() {
    let all = vectors(include_str!("gcmEncryptExtIV128.rsp"));
    assert_eq!(all.len(), 50);
    let mut aes = Aes::new(1);
    for vector in all {
        let [key, nonce, tag] = ["Key", "IV", "Tag"].map(|name| &vector[name][..]);
        let nonce = nonce.try_into().unwrap();
        let tag = tag.try_into().unwrap();
        aes.load(0, key.try_into().unwrap());
        let mut text = vector["PT"].clone();
        assert_eq!(&aes.seal(0, nonce, &vector["AAD"], &mut text), tag, "{vector:?}");
        assert_eq!(text, vector["CT"]);
        assert!(aes.open(0, nonce, &vector["AAD"], &mut text, tag), "{vector:?}");
        assert_eq!(text, vector["PT"]);
    }
}

/// RFC 4493 has no example of 32 bytes; this one is from `openssl mac -cipher AES-128-CBC ... CMAC`.
#[test]
fn a_derived_key_is_the_cmac_of_the_identity() {
    let key = hex!("2b7e151628aed2a6abf7158809cf4f3c");
    let identity = hex!("31524d31 00000000000000000000ffff0a000002 000004d2 deadbeef 01 000000");
    assert_eq!(Aes::new(0).derive(&key, &identity), hex!("1132351f4b6ab6e0813077d857f88d3c"));
}

proptest! {
    /// NIST's longest text has 51 bytes; the library uses other code for longer texts.
    #[test]
    fn another_implementation_seals_to_the_same_bytes(
        key: [u8; 16],
        nonce: [u8; 12],
        aad in prop::collection::vec(any::<u8>(), 0..200),
        text in prop::collection::vec(any::<u8>(), 0..=4096),
    ) {
        let mut ours = text.clone();
        let mut theirs = text;
        let mut aes = Aes::new(1);
        aes.load(0, &key);
        let tag = aes.seal(0, &nonce, &aad, &mut ours);
        let other = Aes128Gcm::new(&key.into());
        let buffer = theirs.as_mut_slice().into();
        let expected = other.encrypt_inout_detached(&nonce.into(), &aad, buffer).unwrap();
        prop_assert_eq!(&tag[..], &expected[..]);
        prop_assert_eq!(ours, theirs);
    }
}
