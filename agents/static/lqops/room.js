/* Refreshes parts of a page, streams replies and activity, copies texts, counts new rows of lists, reads schedules, and adds rows to formsets. Pages work without it. */
(function () {
  "use strict";

  // Whether another option is chosen than at first: the one that is marked, or else the first.
  function isChanged(select) {
    var options = Array.prototype.slice.call(select.options);
    var isMarked = select.multiple || select.size > 1 || options.some(function (option) { return option.defaultSelected; });
    var first = options.find(function (option) { return !option.disabled; });
    return options.some(function (option) {
      return option.selected !== (isMarked ? option.defaultSelected : option === first);
    });
  }

  // What somebody types into holds its part back; so does an open part that the next page has no name for.
  function isBusy(part) {
    var typed = Array.prototype.some.call(part.querySelectorAll("textarea, input:not([type=hidden])"), function (field) {
      return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
    }) || Array.prototype.some.call(part.querySelectorAll("select"), isChanged);
    var focused = document.activeElement;
    return typed || (part.contains(focused) && focused.closest("form")) || part.querySelector("details[open]:not([id])");
  }

  // The node of a fresh part that stands for one of the part before it.
  function counterpart(node, fresh) {
    if (node.matches("details[id] > summary")) {
      return fresh.querySelector("#" + CSS.escape(node.parentElement.id) + " > summary");
    }
    var alike = Array.prototype.slice.call(fresh.querySelectorAll(node.localName));
    var name = ["id", "href", "aria-label"].find(function (one) { return node.hasAttribute(one); });
    return alike.find(function (one) { return one.isEqualNode(node); }) ||
      alike.find(function (one) { return name && one.getAttribute(name) === node.getAttribute(name); });
  }

  // Replaces a part, unless it is busy or unchanged, so that nothing is read out twice. What is open stays open, and
  // the focus stays where it was, or goes to the part if its place is gone.
  function swap(shown, fresh) {
    if (isBusy(shown)) {
      return false;
    }
    [fresh].concat(Array.prototype.slice.call(fresh.querySelectorAll("details[id]"))).forEach(function (node) {
      var before = node.matches("details") && document.getElementById(node.id);
      if (before) {
        node.open = before.open;
      }
    });
    if (shown.hasAttribute("tabindex")) {
      fresh.tabIndex = -1;
    }
    if (shown.isEqualNode(fresh)) {
      return false;
    }
    var focused = shown.contains(document.activeElement) ? document.activeElement : null;
    var next = focused && focused !== shown ? counterpart(focused, fresh) : null;
    shown.replaceWith(fresh);
    if (focused && !next) {
      fresh.tabIndex = -1;
    }
    if (focused) {
      (next || fresh).focus({ preventScroll: true });
    }
    return true;
  }

  // Updates the other parts of the page that data-with names; returns whether one of them has to wait.
  function bringAlong(part, page) {
    var waits = false;
    (part.dataset.with || "").split(" ").forEach(function (id) {
      var shown = document.getElementById(id);
      var fresh = page.getElementById(id);
      if (shown && fresh) {
        swap(shown, fresh);
        waits = waits || (shown.isConnected && Boolean(isBusy(shown)));
      }
    });
    return waits;
  }

  var timers = new WeakMap();

  function refresh(part, soon) {
    var wait = soon ? 0 : Number(part.dataset.every || 10) * 1000;
    clearTimeout(timers.get(part));
    timers.set(part, setTimeout(fetchPart, wait, part));
  }

  function fetchPart(part) {
    if (!part.isConnected) {
      return;
    }
    var rests = isBusy(part) && !part.dataset.with;
    if (document.hidden || rests || part.querySelector("[data-listening]")) {
      refresh(part);
      return;
    }
    fetch(part.dataset.from || location.href, { credentials: "same-origin" })
      .then(function (answer) {
        return answer.ok && !answer.redirected ? answer.text() : Promise.reject(new Error("gone"));
      })
      .then(function (text) {
        var page = new DOMParser().parseFromString(text, "text/html");
        var fresh = page.getElementById(part.id);
        part = part.isConnected ? part : document.getElementById(part.id);
        if (!fresh || !part) {
          return;
        }
        var waits = bringAlong(part, page);
        if ((waits && !fresh.dataset.every) || !swap(part, fresh)) {
          if (!fresh.dataset.every) {
            part.dataset.every = "60"; // it is over; only what somebody types keeps it from being replaced
          }
          refresh(part);
          return;
        }
        if (fresh.dataset.every) {
          refresh(fresh);
        }
        fresh.querySelectorAll("[data-stream]").forEach(listen);
      })
      .catch(function () {
        refresh(part);
      });
  }

  var woken = {};

  // Refreshes a part soon after an event; more events until then change nothing.
  function wake(id, wait) {
    woken[id] = woken[id] || setTimeout(function () {
      delete woken[id];
      var part = document.getElementById(id);
      if (part) {
        refresh(part, true);
      }
    }, wait);
  }

  // While a stream is open, its part of the page is not refreshed; when the stream ends or the run waits, it is.
  function listen(place) {
    var source = new EventSource(place.dataset.stream + "?after=" + place.dataset.after);
    var part = place.closest("[data-every]");
    var reply = place.parentElement.querySelector("[data-reply]").textContent;
    var writes = place.parentElement.querySelector(".lq-writes");
    function end() {
      source.close();
      delete place.dataset.listening;
      if (part) {
        refresh(part, true);
      }
    }
    place.dataset.listening = "yes";
    source.addEventListener("text", function (event) {
      reply += JSON.parse(event.data).text;
      place.textContent = withoutCalls(reply);
      if (writes) {
        writes.textContent = "running \u2026";
      }
    });
    source.addEventListener("status", function (event) {
      if (JSON.parse(event.data).status === "waiting") {
        end();
      }
    });
    source.addEventListener("finished", end);
    source.addEventListener("error", function () {
      if (source.readyState === EventSource.CLOSED) {
        delete place.dataset.listening;
      }
    });
    window.addEventListener("pagehide", function () { source.close(); });
  }

  // Calls in a reply are listed beside it.
  function withoutCalls(text) {
    return text.replace(/<skill>[\s\S]*?(?:<\/skill>|$)|<\/?parallel>|<\/?[a-z]{0,8}$/g, "");
  }

  // Spells out characters that are invisible or change the reading direction.
  function visible(text) {
    return text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}]/gu, function (char) {
      return "\u27e8U+" + char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9";
    });
  }

  function addEvent(list, event) {
    var item = document.createElement("li");
    var time = document.createElement("time");
    var dot = document.createElement("span");
    var text = document.createElement("span");
    time.dateTime = event.created_at;
    time.textContent = event.created_at.slice(11, 19);
    time.title = event.created_at.slice(0, 10) + ", " + time.textContent + " UTC";
    dot.className = "lq-dot " + (JSON.parse(list.dataset.colors)[event.kind] || "");
    text.className = "lq-wrap lq-text";
    text.textContent = visible(event.text);
    item.append(time, dot, text);
    list.prepend(item);
    while (list.children.length > 30) {
      list.lastElementChild.remove();
    }
    list.parentElement.querySelectorAll("[data-empty]").forEach(function (hint) { hint.hidden = true; });
  }

  // Keeps a stream open while the page is shown. A listener that returns true ends it.
  function stream(address, listeners) {
    var source = null;
    var pause = 0;
    function close() {
      clearTimeout(pause);
      if (source) {
        source.close();
        source = null;
      }
    }
    function open() {
      close();
      if (document.hidden) {
        return;
      }
      source = new EventSource(address());
      Object.keys(listeners).forEach(function (name) {
        source.addEventListener(name, function (event) {
          if (listeners[name](event)) {
            document.removeEventListener("visibilitychange", open);
            close();
          }
        });
      });
      source.addEventListener("error", function () {
        if (source && source.readyState === EventSource.CLOSED) {
          pause = setTimeout(open, 30000);
        }
      });
    }
    document.addEventListener("visibilitychange", open);
    window.addEventListener("pagehide", close);
    open();
  }

  // Streams activity, and continues after its last event.
  function follow(list) {
    stream(function () { return list.dataset.follow + "&after=" + list.dataset.after; }, {
      message: function (event) {
        list.dataset.after = event.lastEventId;
        addEvent(list, JSON.parse(event.data));
        wake(list.dataset.refreshes, 1500);
      },
    });
  }

  // Refreshes a part as soon as the run that it shows changes its status; until then, it is refreshed now and then.
  function watchStatus(part) {
    var address = part.dataset.status;
    var id = part.id;
    stream(function () { return address; }, {
      status: function () { wake(id, 100); },
      finished: function () { wake(id, 100); return true; },
    });
  }

  // Says in a list, in the title and in the icon of the tab how many rows are newer than those that the list shows.
  function countNewer(bar) {
    var title = document.title;
    var icon = document.querySelector("link[rel~='icon']");
    function show(found) {
      var text = found.newer > found.most ? found.most + "+" : String(found.newer);
      bar.hidden = found.newer === 0;
      bar.firstElementChild.textContent = text + " new " + (found.newer === 1 ? bar.dataset.one : bar.dataset.many) + ". Show";
      document.title = found.newer ? "(" + text + ") " + title : title;
      if (icon && found.newer) {
        icon.href = "data:image/svg+xml," + encodeURIComponent(
          "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><circle cx='16' cy='16' r='16' fill='#b91c1c'/>" +
          "<text x='16' y='22' font-family='sans-serif' font-size='17' font-weight='700' text-anchor='middle' fill='#fff'>" +
          text + "</text></svg>");
      }
    }
    function ask() {
      setTimeout(function () {
        fetch(bar.dataset.newer, { credentials: "same-origin" })
          .then(function (answer) {
            return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
          })
          .then(show)
          .catch(function () {})
          .then(ask);
      }, document.hidden ? 60000 : 8000);
    }
    ask();
  }

  // Counts the rows of saved views, once the list itself is there.
  function countViews(bar) {
    fetch(bar.dataset.counts, { credentials: "same-origin" })
      .then(function (answer) {
        return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
      })
      .then(function (counts) {
        bar.querySelectorAll("[data-count]").forEach(function (place) {
          place.textContent = counts[place.dataset.count] || "";
        });
      })
      .catch(function () {});
  }

  function addRow(button) {
    var list = document.getElementById(button.dataset.adds);
    var total = document.getElementById("id_" + button.dataset.prefix + "-TOTAL_FORMS");
    var blank = document.getElementById(button.dataset.adds + "-blank");
    var row = blank.content.firstElementChild.cloneNode(true);
    row.querySelectorAll("*").forEach(function (node) {
      ["name", "id", "for"].forEach(function (name) {
        var value = node.getAttribute(name);
        if (value) {
          node.setAttribute(name, value.replace("__prefix__", total.value));
        }
      });
    });
    var order = row.querySelector("[name$='-ORDER']");
    if (order) {
      order.value = Number(total.value) + 1;
    }
    total.value = Number(total.value) + 1;
    list.appendChild(row);
  }

  // Says below a schedule, as it is typed, what it means and when it is due next.
  function readSchedule(input) {
    var zone = input.form && input.form.elements.zone;
    var note = document.createElement("span");
    var wait = null;
    note.className = "lq-hint";
    note.setAttribute("role", "status");
    input.insertAdjacentElement("afterend", note);
    function ask() {
      var query = new URLSearchParams({ cron: input.value, zone: zone ? zone.value : "UTC" });
      fetch(input.dataset.reads + "?" + query, { credentials: "same-origin" })
        .then(function (answer) { return answer.ok ? answer.json() : { text: "" }; })
        .then(function (found) { note.textContent = found.text; })
        .catch(function () { note.textContent = ""; });
    }
    [input, zone].forEach(function (field) {
      if (field) {
        field.addEventListener("input", function () {
          clearTimeout(wait);
          wait = setTimeout(ask, 300);
        });
      }
    });
    if (input.value) {
      ask();
    }
  }

  // Without a secure connection browsers have no clipboard for scripts: then the text is selected and copied.
  function copyText(text) {
    if (navigator.clipboard) {
      return navigator.clipboard.writeText(text);
    }
    var focused = document.activeElement;
    var field = document.createElement("textarea");
    field.value = text;
    field.className = "lq-hidden";
    document.body.append(field);
    field.select();
    var isDone = document.execCommand("copy");
    field.remove();
    focused.focus({ preventScroll: true });
    return isDone ? Promise.resolve() : Promise.reject(new Error("refused"));
  }

  // A button copies the text that it names, or that of the element before it, and says so after it.
  document.addEventListener("click", function (event) {
    var button = event.target.closest("[data-copy]");
    if (!button) {
      return;
    }
    var status = button.nextElementSibling;
    function say(text) {
      status.textContent = text;
      setTimeout(function () { status.textContent = ""; }, 2500);
    }
    copyText(button.dataset.copy || button.previousElementSibling.textContent).then(
      function () { say("Copied"); },
      function () { say("Not copied. Select the text and copy it."); }
    );
  });

  // The receipt runs no script: whoever opened it for printing prints it.
  document.addEventListener("click", function (event) {
    var link = event.target.closest("[data-prints]");
    var opened = link && window.open(link.href);
    if (opened) {
      event.preventDefault();
      opened.addEventListener("load", function () { opened.print(); });
    }
  });

  // Django's lists to choose from, which are made when the page has loaded, have icons with a label but without a role.
  window.addEventListener("load", function () {
    setTimeout(function () {
      document.querySelectorAll(".help-tooltip[aria-label]").forEach(function (icon) { icon.setAttribute("role", "img"); });
    });
  });

  document.addEventListener("DOMContentLoaded", function () {
    // unfold writes the file name into its own widget; plain file inputs show it themselves.
    document.querySelectorAll("input[type=file]").forEach(function (input) { input.hasChangeListener = true; });
    document.querySelectorAll("[data-every]").forEach(function (part) { refresh(part); });
    document.querySelectorAll("[data-stream]").forEach(listen);
    document.querySelectorAll("[data-follow]").forEach(follow);
    document.querySelectorAll("[data-status]").forEach(watchStatus);
    document.querySelectorAll("[data-newer]").forEach(countNewer);
    document.querySelectorAll("[data-counts]").forEach(countViews);
    document.querySelectorAll("[data-reads]").forEach(readSchedule);
    document.querySelectorAll("[data-adds]").forEach(function (button) {
      button.addEventListener("click", function () {
        addRow(button);
      });
    });
  });
})();
