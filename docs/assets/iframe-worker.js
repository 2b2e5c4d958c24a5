// Search runs in a worker, which a page opened as a file may not start; a hidden frame runs it there.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      const inner = frame.contentWindow;
      inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      const script = inner.document.createElement("script");
      script.src = address;
      this.started = new Promise(done => script.addEventListener("load", () => done(inner)));
      inner.document.body.append(script);
    }

    postMessage(data) {
      this.started.then(inner => inner.dispatchEvent(new MessageEvent("message", {data})));
    }
  };
}
