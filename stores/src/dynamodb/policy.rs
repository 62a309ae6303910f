//! What the store has to be allowed.

/// What is asked of the table while messages are handled and when the store is opened. A transaction is allowed by what is in it.
const ACTIONS: [&str; 6] = [
    "dynamodb:BatchGetItem",
    "dynamodb:DeleteItem",
    "dynamodb:DescribeTable",
    "dynamodb:DescribeTimeToLive",
    "dynamodb:GetItem",
    "dynamodb:PutItem",
];

pub(super) fn json(table_arn: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let actions = ACTIONS.map(quoted).join(", ");
    let (table, index) = (quoted(table_arn), quoted(&format!("{table_arn}/index/{}", super::keys::INDEX)));
    format!(
        r#"{{
  "Version": "2012-10-17",
  "Statement": [
    {{ "Effect": "Allow", "Action": [{actions}], "Resource": {table} }},
    {{ "Effect": "Allow", "Action": ["dynamodb:Query"], "Resource": [{table}, {index}] }}
  ]
}}
"#
    )
}
