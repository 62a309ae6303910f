//! What a role has to be allowed.

/// What is asked of queues while messages are sent and received.
const USED: [&str; 8] = [
    "sqs:ChangeMessageVisibility",
    "sqs:DeleteMessage",
    "sqs:GetQueueAttributes",
    "sqs:GetQueueUrl",
    "sqs:ListQueueTags",
    "sqs:ReceiveMessage",
    "sqs:SendMessage",
    // Dead letters have a queue from the first one on.
    "sqs:CreateQueue",
];
/// What is asked beside it where queues and subscriptions are declared.
const DECLARED: [&str; 2] = ["sqs:TagQueue", "sqs:UntagQueue"];

pub(super) fn json(queues_arn: &str) -> String {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let actions = USED.iter().chain(&DECLARED).map(|action| quoted(action)).collect::<Vec<_>>().join(", ");
    let resource = quoted(queues_arn);
    format!(
        r#"{{
  "Version": "2012-10-17",
  "Statement": [
    {{ "Effect": "Allow", "Action": [{actions}], "Resource": {resource} }}
  ]
}}
"#
    )
}
