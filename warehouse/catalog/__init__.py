"""The catalog database: schema, transactions, migrations, bulk statements, errors of the drivers."""
