/* Browsers refuse Web Workers to pages that are opened from the disk. There, and only there, run a
   worker's script inside a hidden frame instead and pass the messages on, so that search works. */
(function () {
  "use strict";
  if (location.protocol !== "file:") return;

  class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.appendChild(this.frame);
      const inner = this.frame.contentWindow;
      const page = inner.document;
      page.open(); // or Firefox would replace the empty page a moment later
      page.write("<!doctype html><title>search</title><body></body>");
      page.close();
      this.loaded = new Promise(function (done) {
        inner.__gcfcpLoaded = done;
      });
      // The worker's own postMessage() must reach the page, not the frame that it runs in.
      inner.__gcfcpSend = (data) => {
        const event = new MessageEvent("message", { data: data });
        this.dispatchEvent(event);
        if (typeof this.onmessage === "function") this.onmessage(event);
      };
      const bridge = page.createElement("script");
      bridge.textContent = "self.postMessage = function (data) { self.__gcfcpSend(data); };";
      page.body.appendChild(bridge);
      const script = page.createElement("script");
      script.onload = function () { inner.__gcfcpLoaded(); };
      script.src = String(url);
      page.body.appendChild(script);
    }
    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.loaded.then(function () {
        inner.dispatchEvent(new MessageEvent("message", { data: data }));
      });
    }
    terminate() {
      this.frame.remove();
    }
  }
  window.Worker = FrameWorker;
})();
