//! Models of the throughput of `RedN`'s constructs (Table 3).

use crate::connectx5::ConnectX5;
use crate::number::{Number, Part, Unit};

use remora_nic::wqe::WqeOpcode;

use super::experiment::{Experiment, Site, rate};
use super::paper::TABLE_3;
use remora_chain::Work;
use remora_chain::assemble;
use remora_chain::{Code, Operand, Test};

/// Number of constructs in sequence.
const COUNT: usize = 64;

pub(crate) fn numbers(model: &ConnectX5) -> Vec<Number> {
    let row = |(curve, measured): (&'static str, f64), modelled| Number {
        figure: "Table 3",
        curve: "constructs",
        at: curve.to_owned(),
        unit: Unit::PerSecond,
        part: Part::Predicted,
        measured: Some(measured),
        modelled,
    };
    let [conditions, unrolled, recycled] = TABLE_3;
    vec![
        row(conditions, whens(model, |_| 5)),
        row(unrolled, whens(model, |index| index as u64)),
        row(recycled, rounds(model)),
    ]
}

/// Returns the rate of rounds of the shipped loop, with its break after [`COUNT`] rounds instead of 10.
fn rounds(model: &ConnectX5) -> f64 {
    let text = remora_chain::COUNT_TO_TEN.replace("signaled 10]", &format!("signaled {COUNT}]"));
    let program = assemble(&text).expect("the shipped program is valid");
    let sites = program.queues.iter().map(|_| Site::server()).collect();
    let main = program.queue("loop").expect("the program has a queue named `loop`");
    let run = Experiment { program, sites }.run(model);
    // The first work request of each round counts the rounds.
    let first =
        run.of(main).filter(|(work, _)| work.wqe.opcode() == WqeOpcode::FETCH_ADD && work.index % 16 == 0);
    rate(&first.map(|(_, times)| times.done).collect::<Vec<_>>())
}

/// Returns the rate of a repeated `if value == 5 { answer = 1 }`; `value` returns the value for each index.
fn whens(model: &ConnectX5, value: impl Fn(usize) -> u64) -> f64 {
    let mut experiment = Experiment::new();
    let mut code = Code::once(&mut experiment.program, "main");
    let one = code.var("one", 1);
    let answer = code.var("answer", 0);
    let values: Vec<_> = (0..COUNT).map(|index| code.var("", value(index))).collect();
    let places: Vec<_> = values
        .into_iter()
        .map(|x| {
            code.when(x, Test::Equal, Operand::Number(5), Work::write(one, answer, 8));
            code.works().len() - 1
        })
        .collect();
    let main = code.end();
    experiment.sites.push(Site::server());
    let run = experiment.run(model);
    let times: Vec<u64> = run.of(main).map(|(_, times)| times.done).collect();
    rate(&places.iter().map(|place| times[*place]).collect::<Vec<_>>())
}
