"""The methods of expressions, one file a family. :class:`transforms.expressions.expression.Expr` has them all."""
