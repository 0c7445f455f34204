//! Records histories of concurrent clients and judges whether they are linearizable or serializable.
//!
//! Tests of the stores record the operations of their clients and pass the history to one of the judges. In
//! the simulated world the history uses simulated time; in real runs each process writes a file. The judges
//! are independent of Remora.
//!
//! ```
//! use remora_check::{History, Measures, Step, linearizable, strictly_serializable};
//!
//! let mut history = History::default();
//! history.invoke(0, 10, &[Step::Write { key: 7, value: 1 }]);
//! history.invoke(1, 12, &[Step::Read { key: 7, value: None }]);
//! // A value may be seen before its writer returned,
//! history.ok(1, 30, &[Step::Read { key: 7, value: Some(1) }]);
//! history.invoke(1, 40, &[Step::Read { key: 7, value: None }]);
//! // but it may not vanish after that.
//! history.ok(1, 50, &[Step::Read { key: 7, value: None }]);
//! // Client 0 is killed: its write may have happened at any time, or never.
//! let broken = linearizable(&history).unwrap_err();
//! assert!(broken.to_string().starts_with("not linearizable: key 7"), "{broken}");
//! assert!(strictly_serializable(&history).is_err());
//!
//! let mut measures = Measures::default();
//! measures.add(&history, &["kill"]);
//! assert_eq!((measures.histories, measures.fired["kill"]), (1, 1));
//! ```

mod history;
mod hold;
mod linear;
mod measures;
mod porcupine;
mod precedence;
mod serial;
mod stamp;
mod transactions;
mod violation;

pub use history::{Event, History, Kind, Operation, Outcome, Step};
pub use hold::hold;
pub use linear::linearizable;
pub use measures::{Measures, Requirements};
pub use serial::{serializable, strictly_serializable};
pub use stamp::{TORN, identify, stamp};
pub use violation::{Anomaly, Violation};
