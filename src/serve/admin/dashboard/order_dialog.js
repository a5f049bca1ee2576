// The dialog of orders: what an order needs is filled in, what it will do is said before it is sent. Each order is an object
// of `orders.js`. The page shows what the token may; the gateway refuses the rest, whatever the page shows.

import { get } from './api.js';
import { setBanResponse } from './orders.js';
import { h, put, setText } from './ui.js';

let may = new Set();

/** Asks the gateway who the operator is, and shows the buttons of what the operator may order. */
export async function learnRights() {
  const operator = await get('whoami');
  may = new Set(operator.may);
  setBanResponse(operator.ban_response);
  for (const button of document.querySelectorAll('[data-order]')) button.hidden = !may.has(button.dataset.order);
  return operator;
}

/** A button that opens the dialog of an order. `values` are those that are given; the others are asked for. */
export function orderButton(order, values = {}, title = order.verb) {
  const name = values.key ?? values.id;
  const target = name ? ` ${name}` : '';
  const button = h('button', {
    type: 'button', class: 'order', 'data-order': order.request, hidden: !may.has(order.request), 'aria-label': `${title}${target}`,
  }, title);
  button.addEventListener('click', () => openDialog(order, values));
  return button;
}

/** A column of a table with buttons. `buttons` returns those of a row. */
export const orderColumn = (buttons) => ({ name: 'orders', title: 'Orders', quiet: true, cell: buttons });

function field({ name, label, initial = '', hint, most, choices, required, free }, given) {
  const id = `order-${name}`;
  const input = h('input', { id, name, autocomplete: 'off', spellcheck: 'false', maxlength: most, required, placeholder: hint, list: choices && `${id}-choices`, readonly: given !== undefined && !free });
  input.value = given ?? initial;
  const list = choices && h('datalist', { id: `${id}-choices` }, choices.map((choice) => h('option', { value: choice })));
  return { input, row: h('label', {}, h('span', {}, label), input, list) };
}

/** Closes a dialog and removes it at once: the event of its end comes later, when another dialog may be open. */
function end(dialog) {
  dialog.close();
  dialog.remove();
}

/** Replaces the form by the result of an order that is shown once. It is gone with the dialog. */
function reveal(dialog, parts) {
  const close = h('button', { type: 'button', id: 'order-close', onclick: () => end(dialog) }, 'Close');
  put(dialog, h('h2', { id: 'order-title' }, 'Done'), h('div', { id: 'order-result' }, parts), h('div', { class: 'choices' }, close));
  close.focus();
}

function openDialog(order, values) {
  const fields = order.fields.map((one) => field(one, values[one.name]));
  const effect = h('p', { id: 'order-effect', 'aria-live': 'polite' });
  const trouble = h('p', { class: 'trouble', role: 'alert', id: 'order-trouble', hidden: true });
  const send = h('button', { type: 'submit', id: 'order-send' }, order.verb);
  const cancel = h('button', { type: 'button', id: 'order-cancel' }, 'Cancel');
  const form = h('form', { method: 'dialog' }, fields.map(({ row }) => row), effect, trouble, h('div', { class: 'choices' }, send, cancel));
  const dialog = h('dialog', { id: 'order', 'aria-labelledby': 'order-title' }, h('h2', { id: 'order-title' }, order.title), form);
  const filled = () => ({ ...values, ...Object.fromEntries(fields.filter(({ input }) => !input.disabled).map(({ input }) => [input.name, input.value.trim()])) });
  const show = () => {
    const omitted = order.omits?.(filled()) ?? [];
    for (const { input, row } of fields) input.disabled = row.hidden = omitted.includes(input.name);
    put(effect, order.effect(filled()));
  };
  form.addEventListener('input', show);
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    send.disabled = true;
    try {
      const response = await order.send(filled());
      if (order.reveal) reveal(dialog, order.reveal(response));
      else end(dialog);
      setText(document.getElementById('said'), order.done(filled(), response));
      dispatchEvent(new Event('ordered'));
    } catch (error) {
      trouble.hidden = false;
      setText(trouble, error.message);
      send.disabled = false;
    }
  });
  cancel.addEventListener('click', () => end(dialog));
  dialog.addEventListener('close', () => dialog.remove());
  document.body.append(dialog);
  show();
  order.prepare?.().then(show);
  dialog.showModal();
}
