//! MANAGE_APPLET: a program runs for as long as somebody waits for it.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use pithead_store::{Durability, Write};
use tokio::time::timeout_at;

use crate::applets::RUNNING_MAX;
use crate::code::{Code, Failure};
use crate::execute::{Answer, Call};
use crate::identity::{Identity, Permission};
use crate::service::Service;

/// Ready once nobody waits for an answer any more: the client has gone, or the drive stops.
pub(crate) type Gone<'a> = Pin<&'a mut (dyn Future<Output = ()> + Send)>;

impl Service {
    /// Runs a program. It has no turn of the store, since it may take long: few run at one time, and one ends when its time is
    /// over or nobody waits for it.
    pub(crate) async fn manage_applet(self: &Arc<Self>, call: &Call, gone: Gone<'_>) -> Result<Answer, Failure> {
        let bodiless = || Failure::new(Code::InvalidExecute, "MANAGE_APPLET has a manageApplet");
        let request = call.body.manage_applet.as_ref().ok_or_else(bodiless)?;
        call.check(Permission::Applet, None)?;
        let busy =
            || Failure::new(Code::ServiceBusy, format!("{RUNNING_MAX} programs run, which is the limit; try again later"));
        let _place = self.applets_running.try_acquire().map_err(|_| busy())?;
        let caller = call.caller(&self.options.limits);
        let managing = async {
            let managing = self.applets.manage(request, &caller);
            match call.until {
                None => managing.await,
                Some(until) => timeout_at(until, managing)
                    .await
                    .unwrap_or_else(|_| Err(Failure::new(Code::Expired, "the time was over before the program had ended"))),
            }
        };
        let output = tokio::select! {
            output = managing => output?,
            () = gone => return Err(Failure::new(Code::ConnectionTerminated, "the program was ended with its connection")),
        };
        if let Some(put) = output.put {
            self.put_output(put, &call.identity).await?;
        }
        let detailed = Some(Bytes::from(output.message.clone()));
        Ok(Answer { code: Code::ExecuteComplete, what: output.message, detailed, body: None, value: output.value })
    }

    /// Puts what a program has put out. As every write that has begun, it ends whatever becomes of the request.
    async fn put_output(self: &Arc<Self>, put: Write, identity: &Arc<Identity>) -> Result<(), Failure> {
        let (service, identity) = (Arc::clone(self), Arc::clone(identity));
        let write = move || service.while_known(&identity, || Ok(service.store.write(vec![put], Durability::Through)?));
        let written = self.pool.spawn_blocking(write).await;
        written.map_err(|lost| Failure::new(Code::InternalError, lost.to_string()))?
    }
}
