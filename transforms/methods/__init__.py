"""The methods of expressions, one file a family. :class:`transforms.expression.Expr` has them all."""
