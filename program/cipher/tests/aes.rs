//! Tests that a sealed message opens only with the same key, nonce and AAD.

use proptest::prelude::*;
use remora_cipher::Aes;
use remora_nic::rma::Cipher;

const NONCE: [u8; 12] = [9; 12];
const AAD: &[u8] = b"a header";

/// Returns a table whose entries have different keys.
fn table(places: u8) -> Aes {
    let mut aes = Aes::new(usize::from(places));
    (0..places).for_each(|place| aes.load(usize::from(place), &[place + 1; 16]));
    aes
}

/// Opens a copy of the text.
fn opens(aes: &mut Aes, place: usize, text: &[u8], tag: &[u8; 16]) -> bool {
    aes.open(place, &NONCE, AAD, &mut text.to_vec(), tag)
}

proptest! {
    #[test]
    fn any_message_comes_back(
        key: [u8; 16],
        nonce: [u8; 12],
        aad in prop::collection::vec(any::<u8>(), 0..300),
        text in prop::collection::vec(any::<u8>(), 0..=4096),
    ) {
        let mut aes = Aes::new(1);
        aes.load(0, &key);
        let mut sealed = text.clone();
        let tag = aes.seal(0, &nonce, &aad, &mut sealed);
        // A ciphertext of a few bytes may equal the plaintext by chance.
        prop_assert!(text.len() < 16 || sealed != text);
        prop_assert!(aes.open(0, &nonce, &aad, &mut sealed, &tag));
        prop_assert_eq!(sealed, text);
    }
}

#[test]
fn each_bit_of_nonce_aad_text_and_tag_counts() {
    let mut aes = table(1);
    // 12 bytes of nonce, 8 of AAD, 24 of text, 16 of tag.
    let mut message = [0x5a; 60];
    let (clear, secret) = message.split_at_mut(20);
    let tag = aes.seal(0, clear[..12].try_into().unwrap(), &clear[12..], &mut secret[..24]);
    message[44..].copy_from_slice(&tag);
    let mut open = |mut message: [u8; 60]| {
        let (clear, secret) = message.split_at_mut(20);
        let (text, tag) = secret.split_at_mut(24);
        aes.open(0, clear[..12].try_into().unwrap(), &clear[12..], text, (&*tag).try_into().unwrap())
    };
    for bit in 0..60 * 8 {
        let mut flipped = message;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(!open(flipped), "bit {bit}");
    }
    assert!(open(message));
}

#[test]
fn a_text_cut_or_moved_into_the_aad_is_refused() {
    let mut aes = table(1);
    let mut text = [1; 32];
    let tag = aes.seal(0, &NONCE, AAD, &mut text);
    for len in 0..32 {
        assert!(!opens(&mut aes, 0, &text[..len], &tag), "{len} bytes");
    }
    let longer = [AAD, &text[..1]].concat();
    assert!(!aes.open(0, &NONCE, &longer, &mut text[1..].to_vec(), &tag));
    assert!(opens(&mut aes, 0, &text, &tag));
}

#[test]
fn what_is_refused_leaves_no_plaintext() {
    let mut aes = table(1);
    let mut text = *b"sixteen bytes of plaintext, twice";
    let tag = aes.seal(0, &NONCE, AAD, &mut text);
    assert!(!aes.open(0, &NONCE, b"another header", &mut text, &tag));
    assert!(!text.windows(5).any(|part| part == b"plain"), "{text:?}");
}

#[test]
fn a_message_of_another_key_is_refused() {
    let mut aes = table(3);
    let mut text = *b"of place 1";
    let tag = aes.seal(1, &NONCE, AAD, &mut text);
    assert_eq!([0, 1, 2].map(|place| opens(&mut aes, place, &text, &tag)), [false, true, false]);
}

#[test]
fn a_key_that_is_replaced_opens_nothing_and_leaves_the_others_alone() {
    let mut aes = table(3);
    let mut texts = [*b"one", *b"two", *b"six"];
    let mut tags = [[0; 16]; 3];
    for (place, (text, tag)) in texts.iter_mut().zip(&mut tags).enumerate() {
        *tag = aes.seal(place, &NONCE, AAD, text);
    }
    let all = |aes: &mut Aes| [0, 1, 2].map(|place| opens(aes, place, &texts[place], &tags[place]));
    aes.load(1, &[77; 16]);
    assert_eq!(all(&mut aes), [true, false, true]);
    let mut new = *b"new";
    let tag = aes.seal(1, &NONCE, AAD, &mut new);
    assert!(opens(&mut aes, 1, &new, &tag));
    aes.load(1, &[2; 16]);
    assert_eq!(all(&mut aes), [true; 3]);
}

#[test]
fn a_wiped_place_opens_nothing_and_leaves_the_others_alone() {
    let mut aes = table(2);
    let mut texts = [*b"one", *b"two"];
    let [one, two] = &mut texts;
    let tags = [aes.seal(0, &NONCE, AAD, one), aes.seal(1, &NONCE, AAD, two)];
    aes.wipe(0);
    assert!(!opens(&mut aes, 0, &texts[0], &tags[0]));
    assert!(opens(&mut aes, 1, &texts[1], &tags[1]));
    aes.load(0, &[1; 16]);
    assert!(opens(&mut aes, 0, &texts[0], &tags[0]));
}

/// The schedule of an empty entry is that of a public key of zeros.
#[test]
fn an_empty_place_refuses_what_is_sealed_under_the_key_of_zeros() {
    let mut aes = Aes::new(3);
    aes.load(0, &[0; 16]);
    aes.load(1, &[0; 16]);
    aes.wipe(1);
    let mut text = *b"forged";
    let tag = aes.seal(0, &NONCE, AAD, &mut text);
    assert_eq!([0, 1, 2].map(|place| opens(&mut aes, place, &text, &tag)), [true, false, false]);
}

#[test]
#[should_panic = "no key at place 1"]
fn nothing_is_sealed_at_a_wiped_place() {
    let mut aes = table(2);
    aes.wipe(1);
    let _ = aes.seal(1, &NONCE, AAD, &mut []);
}

#[test]
fn derived_keys_differ_by_key_and_by_each_bit_of_the_identity() {
    let mut aes = Aes::new(0);
    let derived = aes.derive(&[1; 16], &[0; 32]);
    assert_ne!(derived, aes.derive(&[2; 16], &[0; 32]));
    for bit in 0..256 {
        let mut identity = [0; 32];
        identity[bit / 8] = 1 << (bit % 8);
        assert_ne!(derived, aes.derive(&[1; 16], &identity), "bit {bit}");
    }
}

#[test]
fn its_debug_output_has_numbers_of_places_and_no_key() {
    let mut aes = Aes::new(3);
    aes.load(1, &[0xab; 16]);
    assert_eq!(format!("{aes:?}"), "Aes { places: 3, loaded: 1 }");
}
