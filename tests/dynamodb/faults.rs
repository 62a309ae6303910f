//! What can go wrong between the store and the service, on request: in the client, so that each request has just the fault it is to
//! have. Requests are counted by operation.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use aws_sdk_dynamodb::{
    config::{
        ConfigBag, Intercept, Region, RuntimeComponents,
        interceptors::{
            BeforeDeserializationInterceptorContextMut, BeforeDeserializationInterceptorContextRef,
            BeforeTransmitInterceptorContextMut,
        },
    },
    error::BoxError,
};

/// What happens to a request.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// It does not leave.
    RequestLost,
    /// It is served, and the answer does not come.
    AnswerLost,
    /// The service refuses with this status and body, and does nothing.
    Refused(u16, String),
    /// It is served, and this is answered.
    Altered(u16, String),
}

impl Fault {
    /// The service refuses with an error of this name.
    pub(crate) fn error(status: u16, name: &str) -> Self {
        let space = "com.amazonaws.dynamodb.v20120810";
        Self::Refused(status, format!(r#"{{"__type":"{space}#{name}","message":"injected"}}"#))
    }

    pub(crate) fn throttled() -> Self {
        Self::error(400, "ProvisionedThroughputExceededException")
    }

    /// A transaction whose actions end for these reasons.
    pub(crate) fn cancelled(reasons: &[&str]) -> Self {
        let reasons: Vec<_> = reasons.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
        let (space, reasons) = ("com.amazonaws.dynamodb.v20120810", reasons.join(","));
        let name = "TransactionCanceledException";
        Self::Refused(
            400,
            format!(r#"{{"__type":"{space}#{name}","Message":"injected","CancellationReasons":[{reasons}]}}"#),
        )
    }
}

type Plan = dyn Fn(&str, usize) -> Fault + Send + Sync;

/// Between a client and the service.
#[derive(Clone)]
pub(crate) struct Faults {
    plan: Arc<Plan>,
    count: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<String>>>,
    faults: Arc<Mutex<Vec<Fault>>>,
}

const TARGET: &str = "x-amz-target";

impl Faults {
    /// `plan` is asked for each request, with its operation and its number.
    pub(crate) fn new(plan: impl Fn(&str, usize) -> Fault + Send + Sync + 'static) -> Self {
        Self { plan: Arc::new(plan), count: Arc::default(), seen: Arc::default(), faults: Arc::default() }
    }

    pub(crate) fn none() -> Self {
        Self::new(|_, _| Fault::None)
    }

    /// The `number`-th request of `operation`, counted from this call on, has `fault`.
    pub(crate) fn once(operation: &'static str, number: usize, fault: Fault) -> Self {
        let met = AtomicUsize::new(0);
        Self::new(move |it, _| {
            let hit = it == operation && met.fetch_add(1, Ordering::Relaxed) == number;
            if hit { fault.clone() } else { Fault::None }
        })
    }

    /// What the request at hand is to meet.
    fn fault(&self, config: &ConfigBag) -> Fault {
        let number = config.load::<Region>().and_then(|region| region.as_ref().parse::<usize>().ok());
        number.map_or(Fault::None, |number| self.faults.lock().unwrap()[number].clone())
    }

    /// The operations asked for since the last call of this.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl std::fmt::Debug for Faults {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Faults").finish_non_exhaustive()
    }
}

impl Intercept for Faults {
    fn name(&self) -> &'static str {
        "hapax faults"
    }

    fn modify_before_transmit(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let headers = context.request_mut().headers_mut();
        let operation = headers.get(TARGET).and_then(|target| target.split_once('.')).unwrap().1.to_owned();
        let fault = (self.plan)(&operation, self.count.fetch_add(1, Ordering::Relaxed));
        self.seen.lock().unwrap().push(operation);
        if let Fault::Refused(..) = fault {
            headers.insert(TARGET, "DynamoDB_20120810.Nothing");
        }
        match fault {
            Fault::None => Ok(()),
            Fault::RequestLost => Err("the request is lost".into()),
            fault => {
                let mut faults = self.faults.lock().unwrap();
                // The request has been signed and sent to its region: from here on, the region is but what a later hook is told.
                config.interceptor_state().store_put(Region::new(faults.len().to_string()));
                faults.push(fault);
                Ok(())
            }
        }
    }

    fn read_after_transmit(
        &self,
        _: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        match self.fault(config) {
            Fault::AnswerLost => Err("the answer is lost".into()),
            _ => Ok(()),
        }
    }

    fn modify_before_deserialization(
        &self,
        context: &mut BeforeDeserializationInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        if let Fault::Refused(status, body) | Fault::Altered(status, body) = self.fault(config) {
            let response = context.response_mut();
            *response.status_mut() = status.try_into()?;
            response.headers_mut().remove("x-amz-crc32"); // Of the answer that there was.
            *response.body_mut() = body.into();
        }
        Ok(())
    }
}
