/* Finishes the editors that django-ace makes of textareas: theme, names, errors at their lines, checks while one types. */
(function () {
  "use strict";
  var LIGHT = "ace/theme/github_light_default";
  var DARK = "ace/theme/tomorrow_night";
  var PAUSE = 700; // milliseconds without a key before the text is checked

  function followTheme(editor) {
    function set() {
      editor.setTheme(document.documentElement.classList.contains("dark") ? DARK : LIGHT);
    }
    new MutationObserver(set).observe(document.documentElement, { attributeFilter: ["class"] });
    set();
  }

  // The errors of a failed save: those of the field, and those in the same card that name a line.
  function errorsShown(field) {
    var found = [];
    field.closest(".lq-field").querySelectorAll(".lq-fault").forEach(function (note) {
      note.textContent.split("\n").forEach(function (text) {
        var line = /\bline (\d+)/.exec(text);
        if (line) {
          found.push({ line: Number(line[1]), text: text });
        }
      });
    });
    field.closest(".lq-card").querySelectorAll("[data-line]").forEach(function (note) {
      found.push({ line: Number(note.dataset.line), text: note.querySelector("[data-text]").textContent });
    });
    return found;
  }

  // Browsers word it differently: with the line, or with the number of characters before the error.
  function jsonErrors(text) {
    try {
      JSON.parse(text || "{}");
      return [];
    } catch (error) {
      var line = /line (\d+)/.exec(error.message);
      var position = /position (\d+)/.exec(error.message);
      var row = line ? Number(line[1]) : position ? text.slice(0, Number(position[1])).split("\n").length : text.split("\n").length;
      return [{ line: row, text: error.message }];
    }
  }

  // Writes the errors of a failed save below their lines, until the text is changed.
  function explain(editor, errors) {
    var LineWidgets = window.ace.require("ace/line_widgets").LineWidgets;
    var session = editor.session;
    if (!session.widgetManager) {
      session.widgetManager = new LineWidgets(session);
      session.widgetManager.attach(editor);
    }
    var notes = errors.map(function (error) {
      var note = document.createElement("div");
      note.className = "lq-line-error";
      note.setAttribute("aria-hidden", "true"); // the alert above has it, too
      note.textContent = error.text;
      return session.widgetManager.addLineWidget({ row: rowOf(editor, error), fixedWidth: true, coverGutter: true, el: note });
    });
    session.once("change", function () {
      notes.forEach(function (note) { session.widgetManager.removeLineWidget(note); });
    });
  }

  function rowOf(editor, error) {
    return Math.min(Math.max(error.line, 1), editor.session.getLength()) - 1;
  }

  function mark(editor, errors) {
    editor.session.setAnnotations(errors.map(function (error) {
      return { row: rowOf(editor, error), column: 0, text: error.text, type: error.is_warning ? "warning" : "error" };
    }));
  }

  function item(editor, error) {
    var row = document.createElement("li");
    if (error.line) {
      var button = document.createElement("button");
      button.type = "button";
      button.className = "lq-button small";
      button.textContent = "Line " + error.line;
      button.addEventListener("click", function () {
        editor.gotoLine(error.line, 0, false);
        editor.focus();
      });
      row.append(button, " ");
    }
    row.append(error.text);
    row.className = error.is_warning ? "lq-warn" : "lq-bad";
    return row;
  }

  function ask(field, text) {
    var given = new FormData();
    given.append("text", text);
    ["csrfmiddlewaretoken", "owner"].forEach(function (name) {
      if (field.form.elements[name]) {
        given.append(name, field.form.elements[name].value);
      }
    });
    return fetch(field.dataset.checks, { method: "POST", body: given, credentials: "same-origin" })
      .then(function (answer) {
        return answer.ok && !answer.redirected ? answer.json() : Promise.reject(new Error("gone"));
      })
      .then(function (found) { return found.problems; });
  }

  function checkWhileTyping(editor, field, list) {
    var wait = 0;
    var asked = 0;
    editor.session.on("change", function () {
      clearTimeout(wait);
      wait = setTimeout(function () {
        var text = editor.getValue();
        var mine = ++asked;
        var answer = field.dataset.checks ? ask(field, text) : Promise.resolve(jsonErrors(text));
        answer.then(function (errors) {
          if (mine === asked) {
            mark(editor, errors);
            list.replaceChildren.apply(list, errors.map(item.bind(null, editor)));
          }
        }).catch(function () {});
      }, PAUSE);
    });
  }

  function finish(widget) {
    var editor = widget.editor;
    var field = widget.parentElement.querySelector("textarea.lq-source");
    var label = document.querySelector("label[for='" + field.id + "']");
    var list = document.createElement("ul");
    list.className = "lq-editor-errors";
    list.setAttribute("role", "status");
    widget.insertAdjacentElement("afterend", list);
    followTheme(editor);
    if (label) {
      editor.setOption("textInputAriaLabel", label.textContent.replace("*", "").trim());
      editor.textInput.getElement().id = field.id + "-editor";
      label.htmlFor = field.id + "-editor";
    }
    // Tab passes the line numbers and the text; Enter begins to write, Escape ends that.
    editor.setOptions({ enableKeyboardAccessibility: true, readOnly: field.disabled, indentedSoftWrap: false });
    var details = widget.closest("details");
    if (details) {
      details.addEventListener("toggle", function () { editor.resize(true); });
    }
    var errors = errorsShown(field);
    if (errors.length) {
      mark(editor, errors);
      explain(editor, errors);
      editor.gotoLine(errors[0].line, 0, false);
    }
    if (field.dataset.checks || widget.dataset.mode === "json") {
      checkWhileTyping(editor, field, list);
    }
  }

  if (!window.ace) {
    return; // the plain box stays
  }
  // No worker for the syntax: it is made of a blob, which the policy of the pages refuses. The server checks the text.
  window.ace.config.setDefaultValue("session", "useWorker", false);

  // django-ace makes the editors when the page has loaded; its listener was added before this one.
  window.addEventListener("load", function () {
    document.querySelectorAll(".django-ace-widget").forEach(finish);
  });
})();
