"""The methods of expressions, one file per family. :class:`transforms.expressions.expression.Expr` has them all."""
