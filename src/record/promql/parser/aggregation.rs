//! Parses aggregations: the grouping and the arguments of operators such as `sum` and `topk`.

use super::{Aggregator, Error, Expr, Parser, ValueType};
use crate::record::promql::syntax::{Aggregation, Grouping};

impl Parser<'_> {
    /// Parses the rest of an aggregation whose operator was read before. The operator begins at the byte `start`, for
    /// errors. The grouping may stand before or after the arguments.
    ///
    /// Fails if the syntax, the number of arguments or their types are wrong.
    pub(crate) fn parse_aggregate(
        &mut self,
        aggregator: Aggregator,
        start: usize,
    ) -> Result<Expr, Error> {
        let mut grouping = self.parse_grouping()?;
        let mut arguments = self.parse_arguments()?;
        if grouping.is_none() {
            grouping = self.parse_grouping()?;
        }
        let expected_count = 1 + usize::from(aggregator.has_parameter());
        if arguments.is_empty() {
            let why = "no arguments for aggregate expression provided";
            return Err(self.error_at(start, why));
        }
        if arguments.len() != expected_count {
            let given_count = arguments.len();
            let why = format!(
                "wrong number of arguments for aggregate expression provided, expected {expected_count}, got {given_count}"
            );
            return Err(self.error_at(start, &why));
        }
        let operand = arguments.pop();
        let operand = self.require_type(operand, ValueType::Vector, "aggregation expression")?;
        let parameter = match arguments.pop() {
            Some(parameter) => {
                let context = "aggregation parameter";
                Some(self.require_type(Some(parameter), ValueType::Scalar, context)?)
            }
            None => None,
        };
        Ok(Expr::Aggregate(Box::new(Aggregation {
            aggregator,
            // Without a clause, all series are one group.
            grouping: grouping.unwrap_or(Grouping::By(Vec::new())),
            parameter,
            operand,
        })))
    }

    /// Parses the grouping of an aggregation; `None` if the next token begins none.
    fn parse_grouping(&mut self) -> Result<Option<Grouping>, Error> {
        Ok(match self.skip_keyword(&["by", "without"]) {
            Some("by") => Some(Grouping::By(self.parse_label_list()?)),
            Some(_) => Some(Grouping::Without(self.parse_label_list()?)),
            None => None,
        })
    }
}
