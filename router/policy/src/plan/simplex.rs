//! A small linear program, solved exactly enough and always in the same way.
//!
//! The programs here have a few dozen rows and grow by columns, so a dense inverse of the basis and
//! the primal simplex method are all that is needed. Ties go to the lowest index: the same program
//! takes the same pivots everywhere.

const ZERO: f64 = 1e-9;
/// Pivots without progress before the rule that cannot cycle takes over.
const PATIENCE: u32 = 50;

/// Minimises a cost over columns that are 0 or more, row by row equal to a right-hand side.
#[derive(Clone, Debug)]
pub(super) struct Simplex {
    rows: usize,
    columns: Vec<Column>,
    basis: Vec<usize>,
    inverse: Vec<f64>,
    values: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Column {
    cost: f64,
    entries: Vec<f64>,
}

impl Simplex {
    /// A program whose first columns, one a row with these costs, stand for what is missing.
    pub(super) fn new(missing_costs: &[f64], right: &[f64]) -> Self {
        let rows = right.len();
        let unit = |row: usize| (0..rows).map(|other| f64::from(u8::from(other == row))).collect();
        let columns: Vec<Column> = missing_costs
            .iter()
            .enumerate()
            .map(|(row, cost)| Column { cost: *cost, entries: unit(row) })
            .collect();
        let inverse = columns.iter().flat_map(|column| column.entries.clone()).collect();
        Self { rows, columns, basis: (0..rows).collect(), inverse, values: right.to_vec() }
    }

    pub(super) fn add(&mut self, cost: f64, entries: Vec<f64>) -> usize {
        self.columns.push(Column { cost, entries });
        self.columns.len() - 1
    }

    /// Brings `column` into the basis in place of that of `row`, whatever it costs.
    pub(super) fn force(&mut self, column: usize, row: usize) {
        let direction = self.direction(column);
        self.pivot(column, row, &direction);
    }

    /// Pivots until nothing pays, or `pivots` were made.
    pub(super) fn solve(&mut self, pivots: u32) {
        let mut idle = 0;
        for _ in 0..pivots {
            let prices = self.prices();
            let Some(column) = self.entering(&prices, idle > PATIENCE) else { return };
            let direction = self.direction(column);
            let Some(row) = self.leaving(&direction) else { return };
            idle = if self.values[row] > ZERO { 0 } else { idle + 1 };
            self.pivot(column, row, &direction);
        }
    }

    /// What one unit more of each row's right-hand side would cost.
    pub(super) fn prices(&self) -> Vec<f64> {
        let mut prices = vec![0.0; self.rows];
        for (row, column) in self.basis.iter().enumerate() {
            let cost = self.columns[*column].cost;
            if cost != 0.0 {
                let inverse = &self.inverse[row * self.rows..(row + 1) * self.rows];
                for (price, entry) in prices.iter_mut().zip(inverse) {
                    *price += cost * entry;
                }
            }
        }
        prices
    }

    /// How much of `column` is used.
    pub(super) fn value(&self, column: usize) -> f64 {
        let row = self.basis.iter().position(|basic| *basic == column);
        row.map_or(0.0, |row| self.values[row].max(0.0))
    }

    pub(super) fn cost(&self) -> f64 {
        let used = self.basis.iter().zip(&self.values);
        used.map(|(column, value)| self.columns[*column].cost * value).sum()
    }

    fn entering(&self, prices: &[f64], first: bool) -> Option<usize> {
        let mut best = None;
        let mut least = -ZERO;
        for (index, column) in self.columns.iter().enumerate() {
            let worth: f64 = column.entries.iter().zip(prices).map(|(a, b)| a * b).sum();
            let reduced = column.cost - worth;
            if reduced < least && !self.basis.contains(&index) {
                if first {
                    return Some(index);
                }
                (best, least) = (Some(index), reduced);
            }
        }
        best
    }

    fn leaving(&self, direction: &[f64]) -> Option<usize> {
        let mut best: Option<(f64, usize)> = None;
        for row in (0..self.rows).filter(|row| direction[*row] > ZERO) {
            let ratio = self.values[row].max(0.0) / direction[row];
            let better = best.is_none_or(|(least, chosen)| {
                ratio < least - ZERO
                    || (ratio < least + ZERO && self.basis[row] < self.basis[chosen])
            });
            if better {
                best = Some((ratio, row));
            }
        }
        best.map(|(_, row)| row)
    }

    fn direction(&self, column: usize) -> Vec<f64> {
        let entries = &self.columns[column].entries;
        let inverse = self.inverse.chunks(self.rows);
        inverse.map(|row| row.iter().zip(entries).map(|(a, b)| a * b).sum()).collect()
    }

    fn pivot(&mut self, column: usize, row: usize, direction: &[f64]) {
        let rows = self.rows;
        let scale = 1.0 / direction[row];
        self.values[row] *= scale;
        for entry in &mut self.inverse[row * rows..(row + 1) * rows] {
            *entry *= scale;
        }
        let pivot: Vec<f64> = self.inverse[row * rows..(row + 1) * rows].to_vec();
        for other in (0..rows).filter(|other| *other != row) {
            let factor = direction[other];
            if factor != 0.0 {
                self.values[other] -= factor * self.values[row];
                let target = &mut self.inverse[other * rows..(other + 1) * rows];
                for (entry, pivot) in target.iter_mut().zip(&pivot) {
                    *entry -= factor * pivot;
                }
            }
        }
        self.basis[row] = column;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_program_has_its_known_optimum_and_prices() {
        // Cover 7 and 5 by (2, 1) at 3, (1, 2) at 3 and (1, 0) at 2: 3 of the first, 1 of the second.
        let mut program = Simplex::new(&[1e3, 1e3], &[7.0, 5.0]);
        let first = program.add(3.0, vec![2.0, 1.0]);
        let second = program.add(3.0, vec![1.0, 2.0]);
        let third = program.add(2.0, vec![1.0, 0.0]);
        program.solve(100);
        assert!((program.value(first) - 3.0).abs() < 1e-9);
        assert!((program.value(second) - 1.0).abs() < 1e-9);
        assert_eq!(program.value(third), 0.0);
        assert!((program.cost() - 12.0).abs() < 1e-9);
        assert!(program.prices().iter().all(|price| (price - 1.0).abs() < 1e-9));
    }

    #[test]
    fn a_column_added_later_can_only_make_it_cheaper() {
        let mut program = Simplex::new(&[1e3, 1e3], &[4.0, 4.0]);
        program.add(1.0, vec![1.0, 0.0]);
        program.add(1.0, vec![0.0, 1.0]);
        program.solve(100);
        assert!((program.cost() - 8.0).abs() < 1e-9);
        let both = program.add(1.5, vec![1.0, 1.0]);
        program.solve(100);
        assert!((program.cost() - 6.0).abs() < 1e-9);
        assert!((program.value(both) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn what_no_column_gives_stays_missing_at_its_price() {
        let mut program = Simplex::new(&[10.0, 10.0], &[1.0, 2.0]);
        program.add(1.0, vec![1.0, 0.0]);
        program.solve(100);
        assert!((program.cost() - 21.0).abs() < 1e-9);
    }
}
