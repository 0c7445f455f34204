//! Tests that after the table is created, neither a new key nor a message allocates.

use allocation_counter::measure;
use remora_cipher::Aes;
use remora_nic::rma::Cipher;

#[test]
fn only_making_the_table_allocates() {
    let mut made = None;
    // Checks that the counter works: creating the table makes one or two allocations.
    assert!((1..=2).contains(&measure(|| made = Some(Aes::new(8))).count_total));
    let mut aes = made.unwrap();
    let mut text = [5; 4096];
    let work = measure(|| {
        for round in 0..100_u8 {
            let place = usize::from(round % 8);
            let key = aes.derive(&[round; 16], &[1; 32]);
            aes.load(place, &key);
            let tag = aes.seal(place, &[2; 12], &[3; 60], &mut text);
            assert!(aes.open(place, &[2; 12], &[3; 60], &mut text, &tag));
            assert!(!aes.open(place, &[2; 12], &[4; 60], &mut text, &tag));
            aes.wipe(place);
            assert!(!aes.open(place, &[2; 12], &[3; 60], &mut text, &tag));
        }
    });
    assert_eq!(work.count_total, 0);
}
