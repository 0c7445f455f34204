//! The known reasons for which predictions of the model differ from the paper.

use crate::number::{Number, Part};

/// Figure, curve and point of a prediction that is outside its bound.
const SEQUENTIAL: (&str, &str, &str) = ("Figure 11", "RedN-Seq", "64");

/// Returns the reason in one sentence if the prediction is outside its bound and the reason is known, or the
/// reason why a baseline is not judged.
pub fn reason(number: &Number) -> Option<&'static str> {
    if number.part == Part::Baseline {
        return Some(
            "not judged: one READ of 64 B takes 4.4 us in Figure 10 and 1.8 us in Figure 7, which the constants have",
        );
    }
    if number.holds() != Some(false) {
        return None;
    }
    let place = (number.figure, number.curve, number.at.as_str());
    (place == SEQUENTIAL).then_some(
        "the second look is a second request of the client, whose blocked thread is woken first: no primitive has that",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chains::numbers;
    use crate::connectx5::CONNECTX5;

    #[test]
    fn what_is_missed_has_a_reason_and_what_is_met_has_none() {
        for number in numbers(&CONNECTX5).iter().filter(|number| number.part != Part::Baseline) {
            assert_eq!(reason(number).is_some(), number.holds() == Some(false), "{number:?}");
        }
    }
}
