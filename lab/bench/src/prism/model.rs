//! Model time: Figures 1 and 2 as predicted from the primitives, with the numbers of the paper's text.

use remora_cost::prism::{FIGURE_1, FIGURE_2, MOST_OFF, Plan, Stated, Unit, stated};
use remora_cost::{Constant, CostModel, NETWORKS};

use super::super::Row;
use super::place::VALUE_LEN;

/// Returns the rows of all predictions.
pub(crate) fn rows() -> Vec<Row> {
    let mut rows = bars();
    rows.extend(lines());
    rows.extend(residuals());
    rows
}

/// Returns a prediction, if the hardware supports the plan. A prediction is a single value, so it has one
/// round.
fn prediction(model: CostModel, plan: Plan, network: Constant) -> Option<Row> {
    let ns = model.latency(plan.trips, network.ns)? as f64;
    let len = if plan.name == "cas" { 8 } else { VALUE_LEN };
    let case = format!("model:{}/{}/{len}/{}", model.name(), plan.name, network.name);
    Some(Row::new("prism", case, "latency_p50", "ns", &[ns]))
}

/// Returns the rows of each operation, compared with the plain READ of the RDMA NIC.
fn bars() -> Vec<Row> {
    let [direct, ..] = NETWORKS;
    let read = prediction(CostModel::ConnectX5, FIGURE_1[0], direct).map_or(f64::NAN, |row| row.value);
    let all = CostModel::MODELS.into_iter().flat_map(|model| FIGURE_1.map(|plan| (model, plan)));
    all.filter_map(|(model, plan)| prediction(model, plan, direct))
        .map(|row| row.against("model:ConnectX5/read", &[read]))
        .collect()
}

/// Returns the rows of a READ through a pointer, compared with two READs, in each network.
fn lines() -> Vec<Row> {
    let mut rows = Vec::new();
    for network in NETWORKS {
        let all = FIGURE_2.map(|(model, plan)| prediction(model, plan, network));
        let two = all[0].as_ref().map_or(f64::NAN, |row| row.value);
        rows.extend(all.into_iter().flatten().map(|row| row.against("model:ConnectX5/two-reads", &[two])));
    }
    rows
}

fn residuals() -> Vec<Row> {
    stated().map(residual).into_iter().collect()
}

/// Returns the row of a number in the text, compared with its prediction and with a bound.
pub(crate) fn residual(number: Stated) -> Row {
    let most = MOST_OFF as f64 / 1000.0;
    let (unit, per) = match number.unit {
        Unit::Nanoseconds => ("ns", 1.0),
        Unit::PerMille => ("%", 10.0),
        Unit::PerSecond => ("1/s", 1.0),
    };
    let source = if number.is_source { ", where a constant was read" } else { "" };
    let case = format!("model:paper/{}", number.what);
    Row::new("prism", case, "predicted", unit, &[number.predicted as f64 / per])
        .against(&format!("paper, section {}{source}", number.section), &[number.stated as f64 / per])
        .between(1.0 - most, 1.0 + most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_name_model_operation_and_network_and_every_residual_is_judged() {
        let rows = rows();
        let value_and_ratio =
            |case: &str| rows.iter().find(|row| row.case == case).map(|row| (row.value, row.ratio));
        assert_eq!(value_and_ratio("model:ConnectX5/read/512/direct"), Some((2500.0, Some(1.0))));
        assert_eq!(
            value_and_ratio("model:PrismAsic/indirect-read/512/direct"),
            Some((3100.0, Some(3100.0 / 2500.0)))
        );
        assert_eq!(
            value_and_ratio("model:ConnectX5/indirect-read/512/direct"),
            None,
            "the hardware cannot execute the plan"
        );
        assert_eq!(
            value_and_ratio("model:PrismSoftware/indirect-read/512/rack"),
            Some((5500.0, Some(5500.0 / 6200.0)))
        );
        assert_eq!(value_and_ratio("model:ConnectX5/two-reads/512/datacenter"), Some((53_000.0, Some(1.0))));
        let judged: Vec<&Row> = rows.iter().filter(|row| row.holds.is_some()).collect();
        assert_eq!(judged.len(), stated().len());
        assert!(judged.iter().all(|row| row.holds == Some(true)), "{judged:?}");
    }
}
